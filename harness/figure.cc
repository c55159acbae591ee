// SPDX-License-Identifier: Apache-2.0
#include "harness/figure.h"

#include <fmt/format.h>

#include <cstdlib>

namespace smla {
namespace {

/// `shown(digits)`: the value as text.
template <class Shown>
std::string beside(double value, double limit, int digits, const Shown& shown) {
  constexpr int kAll = 17;  // more tell no two doubles apart
  for (;; ++digits) {
    std::string text = shown(digits);
    const double read = std::strtod(text.c_str(), nullptr);
    if (((read < limit) == (value < limit) && (read > limit) == (value > limit)) || digits >= kAll) return text;
  }
}

}  // namespace

std::string fixed_beside(double value, double limit, int digits) {
  return beside(value, limit, digits, [value](int n) { return fmt::format("{:.{}f}", value, n); });
}
std::string figure_beside(double value, double limit, int digits) {
  return beside(value, limit, digits, [value](int n) { return fmt::format("{:.{}g}", value, n); });
}

}  // namespace smla
