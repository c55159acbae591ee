// SPDX-License-Identifier: Apache-2.0
#include "cases/pages.h"

#include <algorithm>
#include <numeric>

#include "cases/random.h"

namespace smla {
namespace {

/// Swaps page `page` into the first `used` places of `order`, or out of them. `keep` stays where it is.
void place(std::vector<int32_t>& order, int64_t used, int32_t page, bool in_use, int32_t keep, Random& random) {
  const int64_t at = std::find(order.begin(), order.end(), page) - order.begin();
  if ((at < used) == in_use) return;
  const int64_t begin = in_use ? 0 : used, count = in_use ? used : static_cast<int64_t>(order.size()) - used;
  int64_t other = begin + random.below(count);
  if (order[other] == keep) other = begin + (other - begin + 1) % count;
  if (order[other] != keep) std::swap(order[at], order[other]);
}

std::vector<int32_t> shuffled_pages(int64_t num_pages, int64_t used, Random& random) {
  std::vector<int32_t> order(num_pages);
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order.data(), num_pages);
  const auto last = static_cast<int32_t>(num_pages - 1);
  place(order, used, 0, random.one_in(2), -1, random);
  place(order, used, last, random.one_in(2), 0, random);
  order.resize(used);
  return order;
}

std::vector<int32_t> pages_in_order(int64_t num_pages, int64_t used, Random& random) {
  std::vector<int32_t> order(used);
  std::iota(order.begin(), order.end(), static_cast<int32_t>(random.one_in(2) ? 0 : num_pages - used));
  return order;
}

/// Pages at both sides of every border that an offset of too few bits breaks at, the last one first; the rest spread over the pool.
std::vector<int32_t> far_pages(const Case& c, int64_t num_pages, int64_t used, Random& random) {
  const int64_t elements = int64_t{c.page_stride_rows} * c.d_qk, bytes = c.page_stride_rows * row_bytes(c.kv_format, c.d_qk);
  std::vector<int64_t> wanted{num_pages - 1};
  for (const int64_t border : {int64_t{1} << 32, int64_t{1} << 31})
    for (const int64_t stride : {bytes, elements})
      for (const int64_t side : {1, 0, -1}) wanted.push_back(border / stride + side);
  wanted.push_back(0);
  for (int64_t i = 0; i < used; ++i) wanted.push_back(num_pages * i / used + random.below(std::max<int64_t>(1, num_pages / used)));

  std::vector<int32_t> order;
  std::vector<bool> taken(num_pages);
  const auto take = [&](int64_t page) {
    if (static_cast<int64_t>(order.size()) == used || page < 0 || page >= num_pages || taken[page]) return;
    taken[page] = true;
    order.push_back(static_cast<int32_t>(page));
  };
  for (const int64_t page : wanted) take(page);
  for (int64_t page = 0; static_cast<int64_t>(order.size()) < used; ++page) take(page);
  random.shuffle(order.data(), used);
  return order;
}

}  // namespace

std::vector<int32_t> request_lengths(const Case& c) {
  std::vector<int32_t> lengths(c.b, c.s_kv);
  if (c.lens == Lens::full) return lengths;
  Random random(c.seed, Draw::pages, 0);
  const int32_t special[] = {0, 1, std::min(c.page_size - 1, c.s_kv), c.s_kv};
  const int64_t first = c.b < 4 ? 3 : random.below(4);
  for (int32_t r = 0; r < c.b; ++r) lengths[r] = r < 4 ? special[(first + r) % 4] : static_cast<int32_t>(random.between(0, c.s_kv));
  return lengths;
}

PageMap make_pages(const Case& c, const std::vector<int32_t>& lengths, bool moved) {
  PageMap map;
  const int32_t per_request = (c.s_kv - 1) / c.page_size + 1;
  const int32_t shared = c.pattern == Pattern::shared_prefix ? std::max(1, per_request / 2) : 0;
  const int64_t reserved = shared + int64_t{c.b} * (per_request - shared);
  map.pages_per_request = per_request;
  map.num_pages = reserved + std::max<int64_t>(2, reserved / 8);
  if (c.pattern == Pattern::far) map.num_pages = std::max(map.num_pages, (int64_t{9} << 29) / (int64_t{c.page_stride_rows} * c.d_qk) + 16);

  // The distinct logical pages in use, those that are shared once.
  std::vector<int64_t> use_of(int64_t{c.b} * per_request, -1), shared_use(shared, -1);
  for (int32_t r = 0; r < c.b; ++r)
    for (int32_t l = 0; l < per_request && int64_t{l} * c.page_size < lengths[r]; ++l) {
      int64_t fresh = -1;
      int64_t& use = l < shared ? shared_use[l] : fresh;
      if (use < 0) use = static_cast<int64_t>(map.uses.size()), map.uses.push_back({-1, l, r, -1});
      use_of[int64_t{r} * per_request + l] = use;
    }

  Random random(c.seed, Draw::pages, moved ? 2 : 1);
  const auto used = static_cast<int64_t>(map.uses.size());
  const std::vector<int32_t> order = c.pattern == Pattern::far                    ? far_pages(c, map.num_pages, used, random)
                                     : c.pattern == Pattern::contiguous && !moved ? pages_in_order(map.num_pages, used, random)
                                                                                  : shuffled_pages(map.num_pages, used, random);
  map.physical.assign(use_of.size(), -1);
  for (size_t i = 0; i < use_of.size(); ++i)
    if (use_of[i] >= 0) map.physical[i] = order[use_of[i]];
  for (int64_t u = 0; u < used; ++u) map.uses[u].page = map.uses[u].source = order[u];
  std::sort(map.uses.begin(), map.uses.end(), [](const PageUse& a, const PageUse& b) { return a.page < b.page; });
  return map;
}

}  // namespace smla
