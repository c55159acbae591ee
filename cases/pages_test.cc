// SPDX-License-Identifier: Apache-2.0
#include "cases/pages.h"

#include <algorithm>
#include <set>

#include "cases/inputs.h"
#include "cases/kv_format.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("the pool is a permutation with an eighth to spare, and its ends are in use in half of the seeds") {
  int first = 0, last = 0, both = 0;
  for (int seed = 0; seed < 200; ++seed) {
    const Case c = parse_line("decode b=4 s_kv=100 topk=10 page_size=16 seed=" + std::to_string(seed));
    const PageMap map = make_pages(c, request_lengths(c));
    REQUIRE(map.num_pages == 28 + 3);
    std::set<int32_t> used(map.physical.begin(), map.physical.end());
    REQUIRE(used.size() == 28);
    for (int32_t r = 0; r < 4; ++r)
      for (int32_t l = 0; l < 7; ++l) {
        const int32_t page = map.page(r, l);
        const auto use = std::find_if(map.uses.begin(), map.uses.end(), [&](const PageUse& u) { return u.page == page; });
        REQUIRE((use != map.uses.end() && use->logical == l && use->owner == r && use->source == page));
      }
    REQUIRE(map.uses.size() == 28);
    first += used.count(0), last += used.count(30), both += used.count(0) && used.count(30);
  }
  CHECK(std::abs(first - 100) < 30);
  CHECK(std::abs(last - 100) < 30);
  CHECK(std::abs(both - 50) < 25);
}

TEST_CASE("one page in use: the ends still vary") {
  std::set<int32_t> pages;
  for (int seed = 0; seed < 64; ++seed) {
    const Case c = parse_line("decode b=1 s_kv=5 topk=10 seed=" + std::to_string(seed));
    const PageMap map = make_pages(c, request_lengths(c));
    REQUIRE(map.num_pages == 3);
    pages.insert(map.page(0, 0));
  }
  CHECK(pages == std::set<int32_t>{0, 1, 2});
}

TEST_CASE("mixed lengths hold 0, 1, page_size - 1 and s_kv, and leave the size of the pool alone") {
  std::set<int64_t> sizes;
  for (int seed = 0; seed < 20; ++seed) {
    const Case c = parse_line("decode b=6 s_kv=100 topk=10 page_size=16 lens=mixed seed=" + std::to_string(seed));
    const std::vector<int32_t> lengths = request_lengths(c);
    for (const int32_t length : {0, 1, 15, 100}) REQUIRE(std::count(lengths.begin(), lengths.begin() + 4, length) == 1);
    const PageMap map = make_pages(c, lengths);
    sizes.insert(map.num_pages);
    for (int32_t r = 0; r < 6; ++r)
      for (int32_t l = 0; l < 7; ++l) REQUIRE((map.page(r, l) >= 0) == (l * 16 < lengths[r]));
  }
  CHECK(sizes.size() == 1);
  CHECK(request_lengths(parse_line("decode b=1 s_kv=100 lens=mixed")) == std::vector<int32_t>{100});
}

TEST_CASE("contiguous pages follow each other") {
  const Case c = parse_line("decode b=3 s_kv=100 topk=10 page_size=16 pattern=contiguous");
  const PageMap map = make_pages(c, request_lengths(c));
  for (size_t i = 1; i < map.physical.size(); ++i) CHECK(map.physical[i] == map.physical[i - 1] + 1);
}

TEST_CASE("far: pages in use on both sides of 2^31 and 2^32, in bytes and in elements, and the last of the pool") {
  for (const char* format :
       {"kv_format=bf16", "kv_format=fp8_656", "kv_format=bf16 page_stride_rows=70", "kv_format=bf16 page_size=1", "kv_format=bf16 d_qk=512"}) {
    INFO(format);
    const Case c = parse_line(std::string("decode b=2 s_kv=2000 topk=500 pattern=far ") + format);
    const Inputs in = make_inputs(c);
    CHECK(in.num_slots < (int64_t{1} << 31));
    const auto uses = [&](int64_t page) { return in.page_use(page) != nullptr; };
    for (const int64_t border : {int64_t{1} << 31, int64_t{1} << 32})
      for (const int64_t stride : {in.page_stride_bytes, int64_t{c.page_stride_rows} * c.d_qk})
        for (const int64_t side : {-1, 0, 1}) CHECK(uses(border / stride + side));
    CHECK(uses(in.num_pages - 1));
    CHECK(uses(0));
    CHECK((in.num_pages - 1) * int64_t{c.page_stride_rows} * c.d_qk >= int64_t{1} << 32);
    const int64_t last = in.selected.back();
    CHECK((last / c.page_size * c.page_stride_rows + last % c.page_size) * c.d_qk > int64_t{1} << 32);
  }
  const Case one = parse_line("decode b=1 s_kv=10 topk=5 pattern=far");
  CHECK(make_inputs(one).selected.front() * int64_t{one.d_qk} > int64_t{1} << 32);
}
