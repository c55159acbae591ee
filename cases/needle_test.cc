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

TEST_CASE("the needles of 512 rows are 512 entries, the edges of tiles first") {
  const Inputs in = make_inputs(parse_line("decode b=64 s_q=1 h_q=8 s_kv=512 topk=512 page_size=512 values=needle"));
  std::set<int64_t> entries;
  for (int64_t t = 0; t < 64; ++t)
    for (int32_t h = 0; h < 8; ++h) {
      int32_t times = 0;
      const int64_t slot = needle_slot(in, t, h, &times);
      CHECK(times == 1);
      const int32_t* list = in.indices.data() + t * 512;
      entries.insert(std::find(list, list + 512, slot) - list);
    }
  CHECK(entries.size() == 512);
  const int32_t edges[] = {0, 1, 15, 16, 31, 32, 63, 64, 127, 128, 511};
  for (int32_t i = 0; i < 8; ++i) CHECK(needle_slot(in, 0, i) == in.indices[edges[i]]);
  for (int32_t i = 8; i < 11; ++i) CHECK(needle_slot(in, 1, i - 8) == in.indices[512 + edges[i]]);
  CHECK(needle_slot(in, 1, 3) == in.indices[512 + 2]);
  const Inputs later = make_inputs(parse_line("decode b=64 s_q=1 h_q=8 s_kv=512 topk=512 page_size=512 values=needle needle0=9"));
  CHECK(needle_slot(later, 0, 0) == later.indices[128]);
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
