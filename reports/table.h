// SPDX-License-Identifier: Apache-2.0
// One table, three ways to print it.
#pragma once
#include <string>
#include <vector>

namespace smla {

struct Table {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;  // each as wide as titles
  void add(std::vector<std::string> cells);    // throws std::logic_error for another width
  std::string text() const;                    // aligned columns, for a terminal; cells that are numbers to the right
  std::string markdown() const;
  std::string csv() const;
};

}  // namespace smla
