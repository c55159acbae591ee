// SPDX-License-Identifier: Apache-2.0
#include "cases/inputs.h"

#include <algorithm>
#include <cmath>

#include "smla_catch.h"

using namespace smla;

namespace {
Inputs made(const std::string& line) { return make_inputs(parse_line(line)); }
enum {
  kDenseSet = 1,
  kTailPadded = 2,
  kDuplicates = 4,
  kTablePerQuery = 8,
  kScalesPow2 = 16,
  kOutOfRange = 32,
  kSink = 64,
  kTopkLength = 128
};  // as in the door
}  // namespace

TEST_CASE("flags say what the lists are") {
  CHECK(made("decode b=2 s_kv=100 topk=50").flags == kTailPadded);
  CHECK(made("decode b=2 s_kv=100 topk=100 pattern=dense").flags == (kDenseSet | kTailPadded));
  CHECK(made("decode b=2 s_kv=100 topk=100").flags == (kDenseSet | kTailPadded));  // 100 of 100, whatever the order
  CHECK(made("decode b=4 s_q=2 s_kv=100 topk=128 lens=mixed pattern=short_context").flags == (kDenseSet | kTailPadded));
  CHECK(made("decode b=2 s_kv=100 topk=100 pattern=duplicates").flags == (kTailPadded | kDuplicates));
  CHECK(made("decode b=2 s_kv=100 topk=100 pattern=interleaved_invalid").flags == 0);
  CHECK(made("decode b=2 s_kv=100 topk=50 pattern=out_of_range").flags == kOutOfRange);
  CHECK(made("decode b=2 s_kv=100 topk=50 table=query").flags == (kTailPadded | kTablePerQuery));
  CHECK(made("decode b=2 s_kv=100 topk=50 kv_format=fp8_656 scales=pow2").flags == (kTailPadded | kScalesPow2));
  CHECK(made("decode b=2 s_kv=100 topk=100 pattern=stale_tail topk_length=1").flags ==
        (kTailPadded | kTopkLength));  // what stands behind K_t is no entry
  CHECK(made("decode b=2 s_kv=100 topk=50 sink=mixed").flags == (kTailPadded | kSink));
  CHECK(make_inputs(parse_line("decode b=2 s_kv=100 topk=100 pattern=dense"), parse_variant("half_2")).flags == 0);
}

TEST_CASE("selected, valid_keys and special_rows") {
  const Inputs in = made("decode b=40 s_q=1 h_q=1 s_kv=300 topk=200 pattern=padded");
  int64_t valid = 0;
  std::vector<int32_t> slots;
  for (const int32_t index : in.indices)
    if (in.is_valid(index)) ++valid, slots.push_back(index);
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  CHECK(in.valid_keys == valid);
  CHECK(in.selected == slots);
  const auto& special = in.special_rows;
  CHECK(std::is_sorted(special.begin(), special.end()));
  CHECK(special.front() == 0);
  CHECK(special.back() == 39);
  CHECK(special.size() <= 2 + 7 * 2 * 3);
  for (const int64_t row : {3, 19, 35}) CHECK(std::count(special.begin(), special.end(), row) == 1);  // empty: the first, a middle and the last one
}

TEST_CASE("the page table: a row a request or a query, wider than needed, garbage behind the length") {
  const Inputs request = made("decode b=3 s_q=2 h_q=1 s_kv=100 topk=50 page_size=16 lens=mixed");
  CHECK(request.table_rows == 3);
  CHECK(request.max_pages > 7);
  CHECK(request.block_table.size() == static_cast<size_t>(3 * request.max_pages));
  const Inputs query = made("decode b=3 s_q=2 h_q=1 s_kv=100 topk=50 page_size=16 lens=mixed table=query");
  CHECK(query.table_rows == 6);
  int garbage = 0;
  for (int64_t t = 0; t < 6; ++t)
    for (int32_t l = 0; l < query.max_pages; ++l) {
      const int32_t page = query.block_table[t * query.max_pages + l];
      if (l * 16 < query.seq_lens[t / 2]) {
        CHECK(query.page_use(page)->logical == l);
        CHECK(query.page_use(page)->owner == t / 2);
      } else {
        garbage += page < 0 || page >= query.num_pages;
      }
    }
  CHECK(garbage > 10);
}

TEST_CASE("rows of a token before the request's start are empty") {
  const Inputs in = made("decode b=3 s_q=4 h_q=1 s_kv=2 topk=8 pattern=short_context");
  for (int64_t t = 0; t < 12; ++t)
    CHECK(std::count_if(in.indices.begin() + t * 8, in.indices.begin() + t * 8 + 8, [](int32_t i) { return i >= 0; }) ==
          std::max<int64_t>(0, t % 4 - 1));
}

TEST_CASE("sinks") {
  const auto sink = [](const std::string& kind) { return made("decode b=1 s_q=1 h_q=64 s_kv=3000 topk=2048 sink=" + kind).sink; };
  CHECK(sink("none").empty());
  for (const float s : sink("pinf")) CHECK(s == INFINITY);
  for (const float s : sink("ninf")) CHECK(s == -INFINITY);
  double lowest = 100, highest = -100;
  for (const float s : sink("finite")) {
    CHECK(s * 16 == std::floor(s * 16));
    lowest = std::min(lowest, static_cast<double>(s)), highest = std::max(highest, static_cast<double>(s));
  }
  CHECK((lowest > 5.5 && lowest < 7));  // ln 2048 - 2 = 5.62, a 16th less by rounding down
  CHECK((highest > 12 && highest < 13.7));
  const auto mixed = sink("mixed");
  CHECK(std::count(mixed.begin(), mixed.end(), INFINITY) == 16);
  CHECK(std::count(mixed.begin(), mixed.end(), -INFINITY) == 16);
  for (const float s : made("decode b=1 s_q=1 h_q=64 s_kv=3000 topk=2048 sink=finite values=needle").sink) CHECK((s <= 0 && s >= -8.1f));
}

TEST_CASE("formats that are known but not judged have sizes and no rows") {
  const Inputs in = made("decode b=1 s_kv=100 topk=50 d_qk=512 kv_format=fp8_584");
  CHECK(in.row_bytes == 584);
  uint8_t row[1152];
  CHECK_THROWS_AS(kv_row(in, 0, row), UsageError);
}

TEST_CASE("a score scale that takes q out of its type is refused") {
  CHECK_THROWS_WITH(make_inputs(parse_line("decode b=1 s_kv=40 topk=4 sm_scale=1e-40")), ContainsSubstring("passes the range of bf16"));
  CHECK_THROWS_WITH(make_inputs(parse_line("decode b=1 s_kv=40 topk=4 q_dtype=fp16 kv_format=fp16 sm_scale=1e-7")),
                    ContainsSubstring("passes the range of fp16"));
  CHECK_NOTHROW(make_inputs(parse_line("decode b=1 s_kv=40 topk=4 sm_scale=1e-30")));
}
