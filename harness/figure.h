// SPDX-License-Identifier: Apache-2.0
// A figure that stands beside its limit.
#pragma once
#include <string>

namespace smla {

/// `value` with so many digits behind the point, and more where it would else read as its limit, or as on the limit's other side: 1.0004 of 1, not
/// 1.00.
std::string fixed_beside(double value, double limit, int digits = 2);
/// The same with so many significant digits.
std::string figure_beside(double value, double limit, int digits = 3);

}  // namespace smla
