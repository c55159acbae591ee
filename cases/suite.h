// SPDX-License-Identifier: Apache-2.0
// Suites: TOML groups that expand to cases.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"

namespace smla {

struct SuiteCase {
  Case c;
  std::string group, why;
  std::vector<std::string> tags;
  std::string expect = "pass";  // pass | unsupported:<kernel glob> | mistrusted
};
struct Suite {
  std::string name;
  std::vector<SuiteCase> cases;
};
/// A built-in suite (embedded at build time): quick, regression, throughput, stress. Throws UsageError naming the nearest.
Suite load_suite(std::string_view name);
/// A file of the user's. Errors: UsageError "FILE:LINE: key ...".
Suite load_suite_file(const std::string& path);
std::vector<std::string> suite_names();
/// From text; `origin` names it in errors.
Suite parse_suite(std::string_view text, const std::string& origin);

}  // namespace smla
