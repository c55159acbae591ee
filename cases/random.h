// SPDX-License-Identifier: Apache-2.0
// Sequences of draws for the index side of a case, from the same counter-based generator as the values.
#pragma once
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "cases/values.h"

namespace smla {

/// The draws of one thing (a row's list, a page map), in order.
class Random {
 public:
  Random(uint64_t seed, Draw what, uint64_t item) : stream_(draw_at(stream(seed, what), item)) {}
  uint64_t next() { return draw_at(stream_, count_++); }
  /// Uniform in [0, n), n > 0.
  int64_t below(int64_t n) { return static_cast<int64_t>((static_cast<unsigned __int128>(next()) * static_cast<uint64_t>(n)) >> 64); }
  /// Uniform in [low, high].
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool one_in(int64_t n) { return below(n) == 0; }

  template <class T>
  void shuffle(T* items, int64_t n) {
    for (int64_t i = n - 1; i > 0; --i) std::swap(items[i], items[below(i + 1)]);
  }

 private:
  uint64_t stream_, count_ = 0;
};

/// Draws distinct numbers in O(count), however large the range: a shuffle whose swaps are undone.
class Distinct {
 public:
  /// `count` distinct numbers of [0, n), uniform, in random order.
  void draw(Random& random, int32_t n, int32_t count, int32_t* out) {
    while (static_cast<int32_t>(items_.size()) < n) items_.push_back(static_cast<int32_t>(items_.size()));
    swapped_.resize(count);
    for (int32_t i = 0; i < count; ++i) {
      const auto other = static_cast<int32_t>(random.between(i, n - 1));
      std::swap(items_[i], items_[other]);
      swapped_[i] = other;
      out[i] = items_[i];
    }
    for (int32_t i = count - 1; i >= 0; --i) std::swap(items_[i], items_[swapped_[i]]);
  }

 private:
  std::vector<int32_t> items_, swapped_;
};

}  // namespace smla
