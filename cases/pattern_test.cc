// SPDX-License-Identifier: Apache-2.0
// Each pattern does what its name says. Lists are read back through the page table, as positions.
#include "cases/pattern.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <set>

#include "cases/inputs.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// Entries [0, K_t) of a row as positions of its request; -1 where invalid. Fails if an entry is a slot of another request or beyond the row's reach.
std::vector<int32_t> positions(const Inputs& in, int64_t t) {
  std::vector<int32_t> list(in.k_t(t));
  const int64_t r = t / in.c.s_q, n = std::max<int64_t>(0, in.seq_lens[r] - in.c.s_q + t % in.c.s_q + 1);
  for (int32_t i = 0; i < in.k_t(t); ++i) {
    const int32_t index = in.indices[t * in.c.topk + i];
    list[i] = in.is_valid(index) ? in.position(index) : -1;
    if (list[i] < 0) continue;
    REQUIRE(list[i] < n);
    REQUIRE(in.block_table[r * in.max_pages + list[i] / in.c.page_size] == index / in.c.page_size);
  }
  return list;
}

std::vector<int32_t> valid_of(std::vector<int32_t> list) {
  list.erase(std::remove(list.begin(), list.end(), -1), list.end());
  return list;
}

bool is_tail_padded(const std::vector<int32_t>& list) {
  return std::is_partitioned(list.begin(), list.end(), [](int32_t position) { return position >= 0; });
}

bool is_distinct(std::vector<int32_t> list) {
  std::sort(list.begin(), list.end());
  return std::adjacent_find(list.begin(), list.end()) == list.end();
}

Inputs made(const std::string& line) { return make_inputs(parse_line(line)); }

}  // namespace

TEST_CASE("contiguous: the last positions in order, pages in order, -1 behind") {
  const Inputs in = made("decode b=3 s_q=2 h_q=1 s_kv=100 topk=70 page_size=16 pattern=contiguous");
  for (int64_t t = 0; t < 6; ++t) {
    const int32_t n = 99 + static_cast<int32_t>(t % 2);
    const auto list = positions(in, t);
    for (int32_t i = 0; i < 70; ++i) REQUIRE(list[i] == n - 70 + i);
    for (int32_t i = 1; i < 70; ++i) REQUIRE(in.indices[t * 70 + i] == in.indices[t * 70 + i - 1] + 1);
  }
  const auto list = positions(made("decode b=1 s_q=1 h_q=1 s_kv=10 topk=70 pattern=contiguous"), 0);
  for (int32_t i = 0; i < 70; ++i) REQUIRE(list[i] == (i < 10 ? i : -1));
}

TEST_CASE("dense: every position in order, on shuffled pages") {
  const Inputs in = made("decode b=3 s_q=2 h_q=1 s_kv=100 topk=130 page_size=16 pattern=dense");
  bool in_order = true;
  for (int64_t t = 0; t < 6; ++t) {
    const auto list = positions(in, t);
    for (int32_t i = 0; i < 130; ++i) REQUIRE(list[i] == (i < 99 + t % 2 ? i : -1));
    for (int32_t i = 1; i < 99; ++i) in_order &= in.indices[t * 130 + i] == in.indices[t * 130 + i - 1] + 1;
  }
  CHECK_FALSE(in_order);
  CHECK((in.flags & 1) != 0);
  const Inputs with_length = made("decode b=3 s_q=2 h_q=1 s_kv=100 topk=130 page_size=16 pattern=dense topk_length=1");
  CHECK(with_length.topk_length == std::vector<int32_t>{99, 100, 99, 100, 99, 100});
}

TEST_CASE("scattered, sorted, reversed, short_context, far: distinct positions in the order that they name") {
  for (const std::string pattern : {"scattered", "sorted", "reversed", "short_context", "far"}) {
    INFO(pattern);
    const int32_t s_kv = pattern == "short_context" ? 60 : 500;
    const Inputs in = made("decode b=2 s_q=1 h_q=1 s_kv=" + std::to_string(s_kv) + " topk=100 pattern=" + pattern);
    for (int64_t t = 0; t < 2; ++t) {
      const auto list = positions(in, t), valid = valid_of(list);
      CHECK(static_cast<int32_t>(valid.size()) == std::min(s_kv, 100));
      CHECK(is_tail_padded(list));
      CHECK(is_distinct(valid));
      CHECK(std::is_sorted(valid.begin(), valid.end()) == (pattern == "sorted"));
      CHECK(std::is_sorted(valid.rbegin(), valid.rend()) == (pattern == "reversed"));
    }
    CHECK(positions(in, 0) != positions(in, 1));
  }
}

TEST_CASE("scattered positions are uniform") {
  const Inputs in = made("prefill b=1 s_q=400 h_q=1 s_kv=900 topk=50");
  std::vector<int> tenths(10);
  for (int64_t t = 0; t < 400; ++t)
    for (const int32_t position : positions(in, t))
      if (position < 500) ++tenths[position / 50];
  const int total = std::accumulate(tenths.begin(), tenths.end(), 0);
  for (const int count : tenths) CHECK(std::abs(count - total / 10) < 5 * std::sqrt(total / 10));
}

TEST_CASE("page_straddling: runs over page borders, whose two sides lie in unrelated physical pages") {
  for (const int32_t page : {1, 2, 16, 53, 64}) {
    INFO(page);
    const Inputs in = made("decode b=2 s_q=1 h_q=1 s_kv=1500 topk=200 pattern=page_straddling page_size=" + std::to_string(page));
    int crossings = 0, consecutive = 0;
    for (int64_t t = 0; t < 2; ++t) {
      const auto list = valid_of(positions(in, t));
      REQUIRE(list.size() >= 100);
      REQUIRE(is_distinct(list));
      bool run_crosses = false;
      for (size_t i = 0; i < list.size(); ++i) {
        if (i > 0 && list[i] == list[i - 1] + 1) {
          if (list[i] % page != 0) continue;
          run_crosses = true;
          ++crossings;
          consecutive += in.indices[t * 200 + static_cast<int64_t>(i)] / page == in.indices[t * 200 + static_cast<int64_t>(i) - 1] / page + 1;
        } else {
          REQUIRE((i == 0 || run_crosses));  // every run but the last, which may be cut, crosses
          run_crosses = false;
          REQUIRE(list[i] % page >= page - std::max(1, page / 2));
        }
      }
    }
    CHECK(crossings >= 4);
    CHECK(consecutive * 4 < crossings + 4);
  }
}

TEST_CASE("one_page and every_page") {
  const Inputs one = made("decode b=9 s_q=1 h_q=1 s_kv=500 topk=100 page_size=16 pattern=one_page");
  std::set<int32_t> pages;
  for (int64_t t = 0; t < 9; ++t) {
    const auto list = valid_of(positions(one, t));
    CHECK(static_cast<int32_t>(list.size()) == std::min(16, 500 - list[0] / 16 * 16));
    CHECK(is_distinct(list));
    for (const int32_t position : list) REQUIRE(position / 16 == list[0] / 16);
    pages.insert(list[0] / 16);
  }
  CHECK(pages.size() > 3);

  const Inputs every = made("decode b=2 s_q=1 h_q=1 s_kv=500 topk=100 page_size=16 pattern=every_page");
  for (int64_t t = 0; t < 2; ++t) {
    const auto list = valid_of(positions(every, t));
    std::set<int32_t> seen;
    for (const int32_t position : list) seen.insert(position / 16);
    CHECK(list.size() == 32);
    CHECK(seen.size() == 32);
  }
  CHECK(valid_of(positions(made("decode b=1 s_q=1 h_q=1 s_kv=500 topk=20 page_size=16 pattern=every_page"), 0)).size() == 20);
}

TEST_CASE("padded: the first n valid, n over the edges") {
  const Inputs in = made("decode b=9 s_q=1 h_q=1 s_kv=500 topk=200 pattern=padded");
  std::set<size_t> counts;
  for (int64_t t = 0; t < 9; ++t) {
    const auto list = positions(in, t);
    CHECK(is_tail_padded(list));
    counts.insert(valid_of(list).size());
  }
  for (const size_t edge : {0, 1, 63, 64, 65, 199, 200}) CHECK(counts.count(edge) == 1);
  for (int64_t i = 0; i < 9 * 200; ++i) REQUIRE(in.indices[i] >= -1);
}

TEST_CASE("leading_invalid: whole tiles of -1, then valid ones") {
  const Inputs in = made("decode b=8 s_q=1 h_q=1 s_kv=500 topk=300 pattern=leading_invalid");
  std::set<int64_t> leads;
  for (int64_t t = 0; t < 8; ++t) {
    const auto list = positions(in, t);
    const auto lead = std::find_if(list.begin(), list.end(), [](int32_t position) { return position >= 0; }) - list.begin();
    REQUIRE(lead % 64 == 0);
    REQUIRE((lead >= 64 && lead < 300));
    REQUIRE(valid_of(list).size() == static_cast<size_t>(300 - lead));
    leads.insert(lead);
  }
  CHECK(leads.size() > 1);
}

TEST_CASE("interleaved_invalid and out_of_range: holes inside, at the ends and a whole tile") {
  for (const std::string pattern : {"interleaved_invalid", "out_of_range"}) {
    INFO(pattern);
    const Inputs in = made("decode b=8 s_q=1 h_q=1 s_kv=500 topk=300 pattern=" + pattern);
    bool first = false, last = false, tile = false;
    std::set<int64_t> invalid;
    for (int64_t t = 0; t < 8; ++t) {
      const auto list = positions(in, t);
      const auto valid = valid_of(list).size();
      CHECK(valid > 300 / 2);
      CHECK(valid < 300 * 9 / 10);
      CHECK_FALSE(is_tail_padded(list));
      first |= list[0] < 0, last |= list[299] < 0;
      tile |= std::all_of(list.begin() + 64, list.begin() + 128, [](int32_t position) { return position < 0; });
      for (int32_t i = 0; i < 300; ++i)
        if (list[i] < 0) invalid.insert(in.indices[t * 300 + i]);
    }
    CHECK((first && last && tile));
    const bool out = pattern == "out_of_range";
    CHECK(invalid == (out ? std::set<int64_t>{INT_MIN, -2, in.num_slots, in.num_slots + 1, INT_MAX} : std::set<int64_t>{-1}));
    CHECK((in.flags & 32) == (out ? 32 : 0));
    CHECK((in.flags & 2) == 0);
  }
}

TEST_CASE("all_invalid: first, middle and last row of the batch and of each tile of rows, beside live ones") {
  const auto empties = [](int32_t b) {
    const Inputs in = made("decode b=" + std::to_string(b) + " s_q=1 h_q=1 s_kv=100 topk=70 pattern=all_invalid");
    std::vector<int64_t> rows;
    for (int64_t t = 0; t < b; ++t) {
      const size_t valid = valid_of(positions(in, t)).size();
      if (valid == 0) rows.push_back(t);
      else REQUIRE(valid == 70);
    }
    return rows;
  };
  CHECK(empties(1) == std::vector<int64_t>{0});
  CHECK(empties(2) == std::vector<int64_t>{0});
  CHECK(empties(3) == std::vector<int64_t>{0, 2});
  CHECK(empties(5) == std::vector<int64_t>{0, 2, 4});
  CHECK(empties(128) == std::vector<int64_t>{0, 32, 63, 64, 96, 127});
}

TEST_CASE("duplicates: slots named twice, side by side and across tiles") {
  const Inputs in = made("decode b=2 s_q=1 h_q=1 s_kv=500 topk=200 pattern=duplicates");
  CHECK((in.flags & 4) != 0);
  for (int64_t t = 0; t < 2; ++t) {
    const auto list = positions(in, t);
    CHECK(valid_of(list).size() == 200);
    CHECK(std::set<int32_t>(list.begin(), list.end()).size() > 60);
    CHECK(std::set<int32_t>(list.begin(), list.end()).size() <= 100);
    CHECK(list[0] == list[1]);
    CHECK(list[0] == list[64]);
  }
}

TEST_CASE("shared_prefix: requests name the same slots for their first half and their own for the rest") {
  const Inputs in = made("decode b=3 s_q=1 h_q=1 s_kv=160 topk=160 page_size=16 pattern=shared_prefix");
  for (int32_t page = 0; page < 10; ++page)
    for (int32_t r = 1; r < 3; ++r) CHECK((in.block_table[r * in.max_pages + page] == in.block_table[page]) == (page < 5));
  CHECK(in.selected.size() == 5 * 16 + 3 * 5 * 16);
  CHECK(in.num_pages == 20 + 2);
}

TEST_CASE("sink_and_recent: the first four, the last quarter, and a random rest") {
  const Inputs in = made("decode b=2 s_q=1 h_q=1 s_kv=1000 topk=200 pattern=sink_and_recent");
  for (int64_t t = 0; t < 2; ++t) {
    auto list = valid_of(positions(in, t));
    CHECK(list.size() == 200);
    CHECK(is_distinct(list));
    std::sort(list.begin(), list.end());
    for (int32_t i = 0; i < 4; ++i) CHECK(list[i] == i);
    for (int32_t i = 0; i < 50; ++i) CHECK(list[150 + i] == 950 + i);
    CHECK(list[100] > 200);
    CHECK(list[100] < 900);
  }
}

TEST_CASE("topk_length: every edge, with -1 or valid-looking entries behind it") {
  const Inputs in = made("decode b=16 s_q=1 h_q=1 s_kv=500 topk=200 topk_length=1");
  std::set<int32_t> lengths(in.topk_length.begin(), in.topk_length.end());
  for (const int32_t edge : {0, 1, 63, 64, 65, 199, 200}) CHECK(lengths.count(edge) == 1);
  int stale = 0, minus_one = 0;
  for (int64_t t = 0; t < 16; ++t) {
    if (in.k_t(t) >= 190) continue;
    CHECK(valid_of(positions(in, t)).size() == static_cast<size_t>(in.k_t(t)));
    const bool first_valid = in.is_valid(in.indices[t * 200 + in.k_t(t)]);
    for (int32_t i = in.k_t(t); i < 200; ++i) CHECK(in.is_valid(in.indices[t * 200 + i]) == first_valid);
    (first_valid ? stale : minus_one)++;
  }
  CHECK(stale > 0);
  CHECK(minus_one > 0);
}

TEST_CASE("stale_tail: behind topk_length stand slots that no row selects, too") {
  const Inputs in = made("decode b=8 s_q=1 h_q=1 s_kv=500 topk=200 topk_length=1 pattern=stale_tail");
  int stale = 0, unselected = 0, own = 0;
  for (int64_t t = 0; t < 8; ++t)
    for (int32_t i = in.k_t(t); i < 200; ++i) {
      const int32_t index = in.indices[t * 200 + i];
      REQUIRE(in.is_valid(index));
      ++stale;
      unselected += !std::binary_search(in.selected.begin(), in.selected.end(), index);
      const PageUse* use = in.page_use(index / 64);
      own += use != nullptr && use->owner == t;
    }
  CHECK(unselected > stale / 4);
  CHECK(own > stale / 4);
}

TEST_CASE("lists depend on the seed, on nothing else") {
  const auto list = [](const std::string& more) { return made("decode b=2 s_q=1 h_q=2 s_kv=300 topk=100" + more).indices; };
  CHECK(list("") == list(""));
  CHECK(list("") == list(" kv_format=fp8_656"));
  CHECK(list("") != list(" seed=2"));
}
