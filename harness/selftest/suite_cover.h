// SPDX-License-Identifier: Apache-2.0
// What a suite can do without: few cases that cover all that is wanted of it.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "harness/plan.h"

namespace smla {

/// About what a case costs, in products of one key; a row without keys costs something, too.
inline int64_t work(const Case& c) { return c.tokens() * c.h_q * (c.topk + 64); }

/// What a suite wants to have asked at least once, whatever it exposes: the words of a case line but for sizes and seeds; value families in each
/// format, patterns in bf16 and in FP8 (fp16 rows lie as those of bf16 do).
std::set<std::string> axis_values(const Case& c);

struct Coverable {
  std::set<std::string> elements;
  int64_t work = 0;
  bool wanted = false;  // taken before all others
};
/// For each, how many elements it adds to those taken before it: what is wanted, then what adds most, of these the least work. 0 = not taken.
std::vector<size_t> greedy_cover(std::vector<Coverable> from);

}  // namespace smla
