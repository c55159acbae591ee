// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "cases/inputs.h"

namespace smla {

/// The inverse of mix32 (values.h): how a row's sign bits give its slot away.
uint32_t unmix32(uint32_t h);

/// Positions of the lists that hold a key in some row, and those of them that some (t, h) of a `needle` case makes decide.
struct NeedleCoverage {
  int64_t asked = 0, entries = 0;
  double share() const { return entries == 0 ? 0 : static_cast<double>(asked) / static_cast<double>(entries); }
};
NeedleCoverage needle_coverage(const Inputs& in);

}  // namespace smla
