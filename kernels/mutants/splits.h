// SPDX-License-Identifier: Apache-2.0
// Defects in dividing a row and in merging it again.
#pragma once
#include <atomic>

#include "kernels/cpu/split.h"
#include "kernels/cpu/steps.h"

namespace smla::mutants {

using namespace cpu;

struct MergeMultipliesNothing final : Steps {
  bool merge_skips(float) const override { return false; }
};
struct MergeUnguarded final : Steps {
  float merge_term(float lse, float of) const override { return exp(lse - of); }
};
struct MergeWithoutMax final : Steps {
  float merge_term(float lse, float of) const override { return of == -kInf ? 0 : std::exp(lse) / std::exp(of); }
};
struct MergeInBase2 final : Steps {
  float merge_term(float lse, float of) const override { return std::exp2(lse - anchor(of)); }
};
struct MergeAverages final : Steps {
  float merge_weight(float lse, float, int splits) const override { return lse == -kInf ? 0 : 1.f / static_cast<float>(splits); }
};
struct MergedLseIsMax final : Steps {
  float merged_lse(float max, float) const override { return max; }
};
struct MergeByArrival final : Steps {  // who arrives when: a count that runs on from call to call
  int merge_order(int i, int splits) const override { return static_cast<int>((i + merges_.load()) % splits); }
  float merged_lse(float max, float sum) const override {
    ++merges_;
    return Steps::merged_lse(max, sum);
  }
  mutable std::atomic<int64_t> merges_{0};
};
struct LastSplitMissing final : Steps {
  Range range(const Call& c, const Row& row, int split, int splits) const override {
    const Range range = Steps::range(c, row, split, splits);
    return splits > 1 && split == splits - 1 ? Range{range.end, range.end} : range;
  }
};
struct SplitsByPosition final : Steps {
  Range range(const Call& c, const Row& row, int split, int splits) const override {
    const int used = 1 + static_cast<int>(row.t % splits);
    return split < used ? Steps::range(c, row, split, used) : Range{0, 0};
  }
};
struct SplitBoundaryDropped final : Steps {
  Range range(const Call& c, const Row& row, int split, int splits) const override {
    const Range range = Steps::range(c, row, split, splits);
    return {std::min(range.begin + (range.begin > 0), range.end), range.end};
  }
};
struct SplitsOverlap final : Steps {
  Range range(const Call& c, const Row& row, int split, int splits) const override {
    const Range range = Steps::range(c, row, split, splits);
    return {range.begin < range.end ? std::max<int64_t>(range.begin - 1, 0) : range.begin, range.end};
  }
};
struct SplitsFrozen final : Steps {  // the keys are divided as at the first call, the merge is of this call
  Range range(const Call& c, const Row& row, int split, int splits) const override {
    int frozen = 0;
    if (first_.compare_exchange_strong(frozen, splits)) frozen = splits;
    return split < frozen ? Steps::range(c, row, split, frozen) : Range{0, 0};
  }
  mutable std::atomic<int> first_{0};
};
struct CounterNotReset final : Steps {
  void reset(const Call&, int32_t*) const override {}
};
struct PartialsOfPaddedHeads final : Steps {
  int64_t part_written_at(const Call& c, const Row& row, int split, int splits, int h) const override {
    const int64_t padded = (c.p.h_q + 15) / 16 * 16, all = rows(c) * splits * c.p.h_q;
    return ((row.t * splits + split) * padded + h) % all;
  }
};
struct PartialsStrideTimesQueries final : Steps {
  int64_t part_written_at(const Call& c, const Row& row, int split, int splits, int h) const override {
    const int64_t all = rows(c) * splits * c.p.h_q;
    return ((row.t * c.p.s_q * splits + split) * c.p.h_q + h) % all;
  }
};
struct SplitRemainderDropped final : Steps {  // every split has as many tiles; what does not divide is left out
  Range range(const Call& c, const Row& row, int split, int splits) const override {
    const int64_t n = keys(c, row), tiles = (n + kTile - 1) / kTile / splits;
    return splits == 1 ? Steps::range(c, row, split, splits) : Range{std::min(n, split * tiles * kTile), std::min(n, (split + 1) * tiles * kTile)};
  }
};
struct EmptySplitCounts final : Steps {  // with an lse of 0
  float merge_term(float lse, float of) const override { return Steps::merge_term(lse == -kInf && of != -kInf ? 0 : lse, of); }
  float merge_weight(float lse, float merged, int) const override { return Steps::merge_term(lse, merged); }
};

}  // namespace smla::mutants
