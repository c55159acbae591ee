// SPDX-License-Identifier: Apache-2.0
// Index patterns: which positions of its request a row selects. One function a pattern; to add one, see README.md.
#pragma once
#include <cstdint>

#include "cases/case.h"
#include "cases/random.h"

namespace smla {

constexpr int32_t kTile = 64;  // keys that kernels commonly treat at once: patterns put their borders at its multiples

/// Entries of a list before they are mapped to slots: a position in [0, n), or one of these.
constexpr int32_t kNoKey = -1;       // becomes -1
constexpr int32_t kOutOfRange = -2;  // -2 - i becomes the i-th of INT_MIN, -2, num_slots, num_slots + 1, INT_MAX
constexpr int32_t kOutOfRangeKinds = 5;

/// One row's question to a pattern.
struct Row {
  int64_t t, tokens;  // which row, of how many
  int32_t n;          // it selects from positions [0, n)
  int32_t k_t;        // at most so many entries; those from k_t to topk are filled by the caller
  int32_t page_size;
  int32_t* list;  // [k_t], all kNoKey to begin with
  Random& random;
  Distinct& distinct;
};

/// K_t of row t for topk_length=1: over the rows it takes every edge value.
int32_t choose_k_t(const Case& c, int64_t t, int32_t n);
/// Fills row.list.
void select(Pattern pattern, const Row& row);
/// Whether `all_invalid` leaves row t of `tokens` without a key: the first, middle and last of the batch and of every tile of rows.
bool is_left_empty(int64_t t, int64_t tokens);

}  // namespace smla
