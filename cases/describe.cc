// SPDX-License-Identifier: Apache-2.0
// What the lists of a call turned out to be.
#include <algorithm>

#include "cases/pattern.h"
#include "cases/steps.h"

namespace smla {
namespace {

/// Values of the flags, those of kernels/api/smla_kernel.h.
enum : int32_t {
  kDenseSet = 1,
  kTailPadded = 2,
  kDuplicates = 4,
  kTablePerQuery = 8,
  kScalesPow2 = 16,
  kOutOfRangeEntries = 32,
  kSinkGiven = 64,
  kTopkLengthGiven = 128
};

class Bitmap {
 public:
  explicit Bitmap(int64_t n) : words_((n + 63) / 64) {}
  /// Sets bit i; returns whether it was set.
  bool test_and_set(int64_t i) {
    const uint64_t bit = uint64_t{1} << (i & 63);
    const bool was = (words_[i >> 6] & bit) != 0;
    words_[i >> 6] |= bit;
    return was;
  }
  void clear(int64_t i) { words_[i >> 6] &= ~(uint64_t{1} << (i & 63)); }
  template <class F>
  void for_each(F f) const {
    for (size_t w = 0; w < words_.size(); ++w)
      for (uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) f(static_cast<int64_t>(w * 64) + __builtin_ctzll(bits));
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace

void describe(Inputs& in) {
  bool dense_set = true, tail_padded = true, duplicates = false, out_of_range = false;
  Bitmap any_row(in.num_slots), this_row(in.num_slots);
  struct Seen {
    int32_t valid, k_t;
  };
  std::vector<Seen> rows(in.tokens());
  for (int64_t t = 0; t < in.tokens(); ++t) {
    const int32_t* list = in.indices.data() + t * in.c.topk;
    const int32_t k_t = in.k_t(t);
    int32_t valid = 0, distinct = 0, first_invalid = k_t;
    for (int32_t i = 0; i < k_t; ++i) {
      if (!in.is_valid(list[i])) {
        first_invalid = std::min(first_invalid, i);
        out_of_range |= list[i] != -1;
        continue;
      }
      ++valid;
      tail_padded &= i < first_invalid;
      distinct += !this_row.test_and_set(list[i]);
      any_row.test_and_set(list[i]);
    }
    for (int32_t i = 0; i < k_t; ++i)
      if (in.is_valid(list[i])) this_row.clear(list[i]);
    duplicates |= distinct < valid;
    dense_set &= distinct == valid && valid == selectable_positions(in, t);
    in.valid_keys += valid;
    rows[t] = {valid, k_t};
  }
  any_row.for_each([&](int64_t slot) { in.selected.push_back(static_cast<int32_t>(slot)); });

  in.flags = (dense_set ? kDenseSet : 0) | (tail_padded ? kTailPadded : 0) | (duplicates ? kDuplicates : 0) |
             (out_of_range ? kOutOfRangeEntries : 0) | (in.c.table == TableKind::query ? kTablePerQuery : 0) |
             (in.c.scales == Scales::pow2 ? kScalesPow2 : 0) | (in.sink.empty() ? 0 : kSinkGiven) | (in.topk_length.empty() ? 0 : kTopkLengthGiven);

  // Of every kind of row that loops go wrong at, the first, a middle and the last.
  in.special_rows = {0, in.tokens() - 1};
  const auto keep_some = [&](auto is_kind) {
    std::vector<int64_t> found;
    for (int64_t t = 0; t < in.tokens(); ++t)
      if (is_kind(rows[t])) found.push_back(t);
    if (!found.empty()) in.special_rows.insert(in.special_rows.end(), {found.front(), found[found.size() / 2], found.back()});
  };
  for (const int32_t edge : {0, 1, kTile - 1, kTile, kTile + 1, in.c.topk - 1, in.c.topk}) {
    keep_some([&](const Seen& row) { return row.valid == edge; });
    keep_some([&](const Seen& row) { return row.k_t == edge && row.valid != edge; });
  }
  std::sort(in.special_rows.begin(), in.special_rows.end());
  in.special_rows.erase(std::unique(in.special_rows.begin(), in.special_rows.end()), in.special_rows.end());
}

}  // namespace smla
