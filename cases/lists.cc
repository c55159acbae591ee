// SPDX-License-Identifier: Apache-2.0
// The index lists of a case: patterns choose positions, the page map makes slots of them.
#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "cases/index_file.h"
#include "cases/pattern.h"
#include "cases/random.h"
#include "cases/steps.h"

namespace smla {
namespace {

/// Fills [k_t, topk) of a row's list with slots that look valid: its own keys' and others', some of them of pages that hold nothing.
void fill_stale_tail(const Inputs& in, const PageMap& pages, int64_t t, int32_t n, int32_t k_t, Random& random, int32_t* list) {
  const bool anywhere = in.c.pattern != Pattern::far;  // far: the rest of the pool is not there
  for (int32_t i = k_t; i < in.c.topk; ++i) {
    if (anywhere && (n == 0 || i % 2 == 0)) list[i] = static_cast<int32_t>(random.below(in.num_slots));
    else if (n > 0) {
      const int64_t position = random.below(n);
      list[i] = static_cast<int32_t>(int64_t{pages.page(t / in.c.s_q, static_cast<int32_t>(position / in.c.page_size))} * in.c.page_size +
                                     position % in.c.page_size);
    }
  }
}

/// Row t of the case is row t, modulo their number, of the file; of more columns than k_t the first k_t.
void take_from_file(const Case& c, const IndexFile& file, int64_t t, int32_t n, int32_t k_t, int32_t* list) {
  const int64_t row = t % file.rows;
  for (int32_t i = 0; i < std::min<int64_t>(k_t, file.columns); ++i) {
    const int32_t position = file.at(row, i);
    if (position >= n)
      throw UsageError(fmt::format("pattern=file:{}: row {} names position {}, but row {} of the case sees {} of s_kv={}", c.pattern_file, row,
                                   position, t, n, c.s_kv));
    list[i] = position < 0 ? kNoKey : position;
  }
}

int32_t slot_of_entry(const Inputs& in, const PageMap& pages, int64_t request, int32_t entry) {
  const int32_t slots = static_cast<int32_t>(in.num_slots);
  const int32_t out_of_range[kOutOfRangeKinds] = {INT_MIN, -2, slots, slots + 1, INT_MAX};
  if (entry == kNoKey) return -1;
  if (entry < 0) return out_of_range[kOutOfRange - entry];
  return pages.page(request, entry / in.c.page_size) * in.c.page_size + entry % in.c.page_size;
}

}  // namespace

int32_t selectable_positions(const Inputs& in, int64_t t) {
  return static_cast<int32_t>(std::max<int64_t>(0, int64_t{in.seq_lens[t / in.c.s_q]} - in.c.s_q + t % in.c.s_q + 1));
}

void make_lists(Inputs& in, const PageMap& pages) {
  const Case& c = in.c;
  Distinct distinct;
  IndexFile file;
  if (c.pattern == Pattern::file) file = read_index_file(c.pattern_file);
  in.indices.assign(c.tokens() * c.topk, kNoKey);
  if (c.topk_length) in.topk_length.resize(c.tokens());
  for (int64_t t = 0; t < c.tokens(); ++t) {
    Random random(c.seed, Draw::pattern, static_cast<uint64_t>(t));
    const int32_t n = selectable_positions(in, t);
    int32_t k_t = c.topk;
    if (c.topk_length) {
      k_t = choose_k_t(c, t, n);
      if (c.pattern == Pattern::all_invalid && is_left_empty(t, c.tokens()) && random.one_in(2)) k_t = 0;
      in.topk_length[t] = k_t;
    }
    int32_t* list = in.indices.data() + t * c.topk;
    if (c.pattern == Pattern::file) take_from_file(c, file, t, n, k_t, list);
    else select(c.pattern, Row{t, c.tokens(), n, k_t, c.page_size, list, random, distinct});
    for (int32_t i = 0; i < k_t; ++i) list[i] = slot_of_entry(in, pages, t / c.s_q, list[i]);
    if (c.pattern == Pattern::stale_tail || random.one_in(2)) fill_stale_tail(in, pages, t, n, k_t, random, list);
  }
}

}  // namespace smla
