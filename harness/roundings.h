// SPDX-License-Identifier: Apache-2.0
// What a kernel rounds on its way, found out: rows answered in tiles and splits, in fp64 but for one thing that is rounded more than the contract
// declares. Roundings are no noise: who knows which they are knows the error of every channel.
#pragma once
#include <string>
#include <vector>

#include "harness/reread.h"

namespace smla {

/// "P were rounded to bf16, which is not declared": the rounding that accounts for nearly all by which these rows miss the exact ones; else "". Tiles
/// are taken to be 64 keys long, and shared out evenly among splits.
std::string undeclared_rounding(const std::vector<WrongRow>& rows);

}  // namespace smla
