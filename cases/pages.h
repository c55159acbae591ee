// SPDX-License-Identifier: Apache-2.0
// Where the pages of the requests lie in the pool.
#pragma once
#include <cstdint>
#include <vector>

#include "cases/inputs.h"

namespace smla {

/// Lengths of the requests, [b]: s_kv, or for lens=mixed 0, 1, page_size - 1 and s_kv among the first four (s_kv first where b < 4), then uniform.
std::vector<int32_t> request_lengths(const Case& c);

/// A page table. Every request reserves ceil(s_kv / page_size) pages, so that the pool's size depends on the shape alone, not on seed or lengths.
struct PageMap {
  int64_t num_pages = 0;
  int32_t pages_per_request = 0;
  std::vector<int32_t> physical;  // [b][pages_per_request]; -1 behind the request's length
  std::vector<PageUse> uses;      // sorted by page; source = page
  int32_t page(int64_t request, int32_t logical_page) const { return physical[request * pages_per_request + logical_page]; }
};

/// num_pages = reserved pages + max(2, an eighth of them), in seeded random order; the first and the last physical page are each in use in half of
/// the seeds. contiguous: in order. shared_prefix: the first half of every request's pages is shared. far: a pool that passes 2^32 elements and 2^32
/// bytes, with pages in use at those borders. `moved` gives another permutation of the same logical pages.
PageMap make_pages(const Case& c, const std::vector<int32_t>& lengths, bool moved = false);

}  // namespace smla
