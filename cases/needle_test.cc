// SPDX-License-Identifier: Apache-2.0
#include "cases/needle.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "cases/inputs.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// A cached row as a kernel sees it.
std::vector<double> decoded(const Inputs& in, int64_t slot) {
  std::vector<uint8_t> row(in.row_bytes);
  kv_row(in, slot, row.data());
  const bool fp8 = in.c.kv_format == KvFormat::fp8_656;
  std::vector<double> k(576);
  for (int32_t c = 0; c < 576; ++c) {
    if (fp8 && c < 512) {
      float scale;
      memcpy(&scale, row.data() + 512 + c / 128 * 4, 4);
      k[c] = std::ldexp(8 + (row[c] & 7), (row[c] >> 3 & 15) - 10) * (row[c] & 0x80 ? -1 : 1) * static_cast<double>(scale);
    } else {
      uint16_t bits;
      memcpy(&bits, row.data() + (fp8 ? 528 + 2 * (c - 512) : 2 * c), 2);
      k[c] = static_cast<double>(widen(in.c.q_dtype, bits));
    }
  }
  return k;
}

std::vector<float> latent(const Inputs& in, int64_t slot) {
  const std::vector<double> k = decoded(in, slot);
  return {k.begin(), k.begin() + 512};
}

/// The positions of row t's list that its queries point at, in the order of heads.
std::vector<int32_t> asked_of_row(const Inputs& in, int64_t t) {
  const int32_t* list = in.indices.data() + t * in.c.topk;
  std::vector<int32_t> asked;
  for (int32_t h = 0; h < in.c.h_q; ++h)
    if (const int64_t slot = needle_slot(in, t, h); slot >= 0) asked.push_back(static_cast<int32_t>(std::find(list, list + in.c.topk, slot) - list));
  return asked;
}

}  // namespace

TEST_CASE("mix32 is undone") {
  for (uint32_t i = 0; i < 100000; ++i) REQUIRE(unmix32(mix32(i * 2654435761u)) == i * 2654435761u);
}

TEST_CASE("the needle's key outweighs all others together") {
  for (const char* line : {"decode b=2 s_q=1 h_q=4 s_kv=3000 topk=2048 values=needle",
                           "decode b=2 s_q=1 h_q=4 s_kv=3000 topk=2048 values=needle q_dtype=fp16 kv_format=fp16 sm_scale=0.3",
                           "decode b=2 s_q=1 h_q=4 s_kv=3000 topk=2048 values=needle kv_format=fp8_656 scales=pow2",
                           "decode b=2 s_q=1 h_q=4 s_kv=3000 topk=2048 values=tracer kv_format=fp8_656 scales=pow2 q_dtype=fp16 sm_scale=0.05"}) {
    INFO(line);
    const Inputs in = make_inputs(parse_line(line));
    for (int32_t h = 0; h < 4; ++h) {
      const int64_t needle = needle_slot(in, 1, h);
      std::vector<uint16_t> q(576);
      q_row(in, 1, h, q.data());
      double own = 0, best = -1e9;
      for (int32_t i = 0; i < 2048; ++i) {
        const int32_t slot = in.indices[2048 + i];
        const std::vector<double> k = decoded(in, slot);
        double x = 0;
        for (int32_t c = 0; c < 576; ++c) x += k[c] * static_cast<double>(widen(in.c.q_dtype, q[c]));
        x *= static_cast<double>(in.c.sm_scale);
        if (slot == needle) own = x;
        else best = std::max(best, x);
      }
      CHECK(own - best > 100);  // exp(-100) of another key is nothing, in fp32 as in bf16
    }
  }
}

TEST_CASE("512 queries ask 512 entries, and needle0 goes on where others stopped") {
  for (const char* line :
       {"decode b=64 s_q=1 h_q=8 s_kv=512 topk=512 page_size=512 values=needle", "prefill b=1 s_q=32 h_q=16 s_kv=1000 topk=512 values=needle",
        "decode b=512 s_q=1 h_q=1 s_kv=600 topk=512 values=needle kv_format=fp8_656 scales=pow2"}) {
    INFO(line);
    const NeedleCoverage coverage = needle_coverage(make_inputs(parse_line(line)));
    CHECK(coverage.asked == 512);
    CHECK(coverage.entries == 512);
  }
  std::set<int32_t> entries;
  for (const char* needle0 : {"0", "128", "256", "384"}) {
    const Inputs in = make_inputs(parse_line(std::string("decode b=16 s_q=1 h_q=8 s_kv=600 topk=512 values=needle needle0=") + needle0));
    CHECK(needle_coverage(in).asked == 128);
    for (int64_t t = 0; t < 16; ++t)
      for (int32_t position : asked_of_row(in, t)) entries.insert(position);
  }
  CHECK(entries.size() == 512);
}

TEST_CASE("few queries ask what kernels lose: the end, the beginning, then where splits, tiles and pages border") {
  const Inputs four = make_inputs(parse_line("decode b=4 s_q=1 h_q=1 s_kv=19 topk=19 values=needle"));
  CHECK(asked_of_row(four, 0) == std::vector<int32_t>{18});
  CHECK(asked_of_row(four, 1) == std::vector<int32_t>{0});
  CHECK(asked_of_row(four, 2) == std::vector<int32_t>{16});
  CHECK(asked_of_row(four, 3) == std::vector<int32_t>{15});
  const Inputs one = make_inputs(parse_line("decode b=1 s_q=1 h_q=8 s_kv=2048 topk=2048 values=needle"));
  CHECK(asked_of_row(one, 0) == std::vector<int32_t>{2047, 0, 1024, 1023, 512, 511, 1536, 1535});
  // A list in the order of the context goes on in another page first at 190 = 10 + 180, and positions before 200 are not in it.
  const Inputs paged = make_inputs(parse_line("decode b=1 s_q=1 h_q=4 s_kv=390 topk=190 page_size=210 pattern=contiguous values=needle"));
  CHECK(asked_of_row(paged, 0) == std::vector<int32_t>{189, 0, 10, 9});
}

TEST_CASE("the others come in an order of the seed's") {
  const std::string line = "decode b=1 s_q=1 h_q=16 s_kv=100 topk=100 values=needle seed=";
  std::set<std::vector<int32_t>> orders;
  for (const char* seed : {"1", "2", "3"}) orders.insert(asked_of_row(make_inputs(parse_line(line + seed)), 0));
  CHECK(orders.size() == 3);
}

TEST_CASE("a row whose list ends or begins elsewhere asks that too, and half of the queries ask the rest") {
  const Inputs in = make_inputs(parse_line("decode b=9 s_q=1 h_q=8 s_kv=700 topk=192 topk_length=1 pattern=stale_tail values=needle"));
  std::set<int32_t> ends;
  for (int64_t t = 0; t < 9; ++t) {
    const std::vector<int32_t> asked = asked_of_row(in, t);
    if (in.k_t(t) == 0) CHECK(asked.empty());
    else if (ends.insert(in.k_t(t)).second) CHECK(std::count(asked.begin(), asked.end(), in.k_t(t) - 1) >= 1);
  }
  CHECK(ends.size() >= 5);
  const Inputs causal = make_inputs(parse_line("prefill b=1 s_q=64 h_q=1 s_kv=64 topk=64 pattern=contiguous values=needle"));
  for (int64_t t = 0; t < 64; t += 2) CHECK(asked_of_row(causal, t) == std::vector<int32_t>{static_cast<int32_t>(t)});
  CHECK(needle_coverage(causal).asked > 48);
  const Inputs holes = make_inputs(parse_line("decode b=9 s_q=1 h_q=8 s_kv=700 topk=640 pattern=leading_invalid values=needle"));
  std::set<int32_t> begins;
  for (int64_t t = 0; t < 9; ++t) {
    const auto row = holes.indices.begin() + t * 640;
    const auto first = static_cast<int32_t>(std::find_if(row, row + 640, [&](int32_t i) { return holes.is_valid(i); }) - row);
    const std::vector<int32_t> asked = asked_of_row(holes, t);
    if (begins.insert(first).second) CHECK(std::count(asked.begin(), asked.end(), first) == 1);
  }
  CHECK(begins.size() >= 3);
}

TEST_CASE("duplicates count, and a row without keys has no needle") {
  const Inputs in = make_inputs(parse_line("decode b=5 s_q=1 h_q=8 s_kv=300 topk=200 pattern=duplicates values=needle"));
  int32_t most = 0;
  for (int32_t h = 0; h < 8; ++h) {
    int32_t times = 0;
    const int64_t slot = needle_slot(in, 2, h, &times);
    CHECK(times == std::count(in.indices.begin() + 400, in.indices.begin() + 600, slot));
    most = std::max(most, times);
  }
  CHECK(most > 1);
  const Inputs empty = make_inputs(parse_line("decode b=5 s_q=1 h_q=8 s_kv=300 topk=200 pattern=all_invalid values=needle"));
  CHECK(needle_slot(empty, 2, 0) == -1);
  CHECK(needle_slot(empty, 1, 0) >= 0);
}

TEST_CASE("trace_slot names the slot that a row was read from") {
  for (const char* line : {"decode b=2 s_q=1 h_q=1 s_kv=200 topk=100 values=tracer seed=9",
                           "decode b=2 s_q=1 h_q=1 s_kv=200 topk=100 values=needle kv_format=fp8_656 scales=pow2",
                           "decode b=2 s_q=1 h_q=1 s_kv=2000 topk=100 values=tracer pattern=far seed=123456789012345"})
    for (const char* word : {"base", "remapped", "perturb_kv", "remapped+batch_reversed+perturb_kv"}) {
      INFO(line << " " << word);
      const Inputs in = make_inputs(parse_line(line), parse_variant(word));
      for (const int64_t slot : {in.selected.front(), in.selected[7], in.selected.back()}) CHECK(trace_slot(in, latent(in, slot).data()) == slot);
      std::vector<float> mixed = latent(in, in.selected[5]);
      for (int32_t c = 0; c < 400; ++c) mixed[c] = static_cast<float>(c % 2) - 0.5f;
      CHECK(trace_slot(in, mixed.data()) == in.selected[5]);  // three whole words are left of the row
      std::fill(mixed.begin(), mixed.end(), 0.0f);
      CHECK(trace_slot(in, mixed.data()) == -1);
      std::fill(mixed.begin(), mixed.end(), NAN);
      CHECK(trace_slot(in, mixed.data()) == -1);
      for (int32_t c = 0; c < 512; ++c) mixed[c] = splitmix64(c) & 1 ? 1.0f : -1.0f;
      CHECK(trace_slot(in, mixed.data()) == -1);
    }
}
