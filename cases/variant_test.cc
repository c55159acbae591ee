// SPDX-License-Identifier: Apache-2.0
// Variants: their words, and what each leaves alone.
#include <algorithm>
#include <map>

#include "cases/inputs.h"
#include "smla_catch.h"

using namespace smla;

namespace {

using Bytes = std::string;

Bytes row_of(const Inputs& in, int64_t slot) {
  std::vector<uint8_t> row(in.row_bytes);
  kv_row(in, slot, row.data());
  return {row.begin(), row.end()};
}

std::vector<uint16_t> q_of(const Inputs& in, int64_t t, int32_t h) {
  std::vector<uint16_t> q(in.c.d_qk);
  q_row(in, t, h, q.data());
  return q;
}

/// The cached rows that token t attends, in any order.
std::vector<Bytes> keys_of(const Inputs& in, int64_t t) {
  std::vector<Bytes> keys;
  for (int32_t i = 0; i < in.k_t(t); ++i)
    if (const int32_t index = in.indices[t * in.c.topk + i]; in.is_valid(index)) keys.push_back(row_of(in, index));
  std::sort(keys.begin(), keys.end());
  return keys;
}

int32_t invalid_entries(const Inputs& in, int64_t t) { return in.k_t(t) - static_cast<int32_t>(keys_of(in, t).size()); }

const char* const kLines[] = {
    "decode b=3 s_q=2 h_q=2 s_kv=150 topk=70 page_size=16",
    "decode b=4 s_q=1 h_q=3 s_kv=150 topk=70 kv_format=fp8_656 pattern=interleaved_invalid topk_length=1",
    "decode b=5 s_q=1 h_q=2 s_kv=100 topk=90 pattern=duplicates lens=mixed sink=finite",
    "decode b=2 s_q=2 h_q=2 s_kv=80 topk=90 pattern=out_of_range values=needle",
    "decode b=4 s_q=1 h_q=2 s_kv=150 topk=70 pattern=shared_prefix page_size=16",
};

Inputs made(const char* line, std::string_view variant) { return make_inputs(parse_line(line), parse_variant(variant)); }

}  // namespace

TEST_CASE("variants have words that read back") {
  CHECK(to_word(Variant{}) == "base");
  CHECK(parse_variant("base") == Variant{});
  Variant all;
  all.poison = Poison::huge;
  all.permute_indices = all.insert_invalid = all.remap_pages = all.permute_batch = all.pad_strides = all.second = true;
  all.scale_q_log2 = -3;
  all.half = 2;
  all.num_splits = 0;
  all.perturb = "sm_scale";
  CHECK(to_word(all) == "poison_huge+permuted+inserted+remapped+batch_reversed+strided+second+scaled_-3+half_2+splits_0+perturb_sm_scale");
  CHECK(parse_variant(to_word(all)) == all);
  CHECK(parse_variant("poison_random").poison == Poison::random);
  CHECK(parse_variant("poison_numbers").poison == Poison::numbers);
  CHECK_THROWS_WITH(parse_variant("poison_hug"), "variant: unknown value 'poison_hug'; did you mean 'poison_huge'?");
  CHECK_THROWS_WITH(parse_variant("perturb_qq"), "variant perturb_*: unknown value 'qq'; did you mean 'q'?");
  CHECK_THROWS_WITH(parse_variant("splits_x"), "variant 'splits_x': 'x' is not a number");
  CHECK_THROWS_AS(parse_variant("base+"), UsageError);
  CHECK_THROWS_AS(parse_variant(""), UsageError);
}

TEST_CASE("the same case and variant give the same inputs") {
  for (const char* line : kLines) {
    const Inputs a = made(line, "remapped+permuted"), b = made(line, "remapped+permuted");
    CHECK(a.indices == b.indices);
    CHECK(a.block_table == b.block_table);
  }
}

TEST_CASE("another order, holes, or other pages leave every row the same keys") {
  for (const char* line : kLines) {
    const Inputs base = made(line, "base");
    for (const char* word : {"permuted", "inserted", "remapped", "permuted+inserted+remapped"}) {
      INFO(line << " " << word);
      const Inputs in = made(line, word);
      const bool grows = std::string_view(word).find("inserted") != std::string_view::npos;
      const int32_t more = grows ? std::max(1, base.c.topk / 16) : 0;
      CHECK(in.c.topk == base.c.topk + more);
      CHECK(in.indices != base.indices);
      CHECK(in.valid_keys == base.valid_keys);
      CHECK(in.num_slots == base.num_slots);
      CHECK(in.seq_lens == base.seq_lens);
      CHECK(in.sink == base.sink);
      for (int64_t t = 0; t < base.tokens(); ++t) {
        REQUIRE(keys_of(in, t) == keys_of(base, t));
        REQUIRE(invalid_entries(in, t) == invalid_entries(base, t) + more);
        for (int32_t h = 0; h < base.c.h_q; ++h) REQUIRE(q_of(in, t, h) == q_of(base, t, h));
      }
    }
  }
}

TEST_CASE("a tail-padded list stays one when it is permuted, and stale entries stay where they are") {
  const Inputs in = made("decode b=8 s_q=1 h_q=1 s_kv=90 topk=70 pattern=padded", "permuted");
  CHECK((in.flags & 2) != 0);
  const char* line = "decode b=8 s_q=1 h_q=1 s_kv=90 topk=70 pattern=stale_tail topk_length=1";
  const Inputs base = made(line, "base"), permuted = made(line, "permuted");
  for (int64_t t = 0; t < base.tokens(); ++t)
    for (int32_t i = base.k_t(t); i < base.c.topk; ++i) REQUIRE(permuted.indices[t * 70 + i] == base.indices[t * 70 + i]);
}

TEST_CASE("inserted holes stand inside the list too") {
  const Inputs in = made("decode b=8 s_q=1 h_q=1 s_kv=400 topk=256", "inserted");
  CHECK((in.flags & 2) == 0);
}

TEST_CASE("remapped pages move every page's table entry along") {
  const Inputs base = made(kLines[0], "base"), in = made(kLines[0], "remapped");
  for (int32_t r = 0; r < 3; ++r)
    for (int32_t page = 0; page < (150 + 15) / 16; ++page) {
      const int32_t was = base.block_table[r * base.max_pages + page], is = in.block_table[r * in.max_pages + page];
      REQUIRE(in.page_use(is)->logical == page);
      REQUIRE(row_of(in, int64_t{is} * 16 + 3) == row_of(base, int64_t{was} * 16 + 3));
    }
}

TEST_CASE("a reversed batch is the same requests in the other order") {
  for (const char* line : kLines) {
    const Inputs base = made(line, "base"), in = made(line, "batch_reversed");
    const int64_t b = base.c.b, s_q = base.c.s_q;
    for (int64_t r = 0; r < b; ++r) {
      REQUIRE(in.seq_lens[r] == base.seq_lens[b - 1 - r]);
      for (int64_t j = 0; j < s_q; ++j) {
        const int64_t t = r * s_q + j, was = (b - 1 - r) * s_q + j;
        REQUIRE(keys_of(in, t) == keys_of(base, was));
        REQUIRE(q_of(in, t, 1) == q_of(base, was, 1));
        REQUIRE(in.k_t(t) == base.k_t(was));
        if (in.c.values == Values::needle) REQUIRE(needle_slot(in, t, 1) == needle_slot(base, was, 1));
      }
    }
  }
}

TEST_CASE("two halves are the whole") {
  for (const char* line : kLines) {
    const Inputs base = made(line, "base"), first = made(line, "half_1"), second = made(line, "half_2");
    CHECK(first.valid_keys + second.valid_keys == base.valid_keys);
    for (int64_t t = 0; t < base.tokens(); ++t) {
      std::vector<Bytes> both = keys_of(first, t);
      for (Bytes& row : keys_of(second, t)) both.push_back(row);
      std::sort(both.begin(), both.end());
      REQUIRE(both == keys_of(base, t));
      REQUIRE(keys_of(first, t).size() == keys_of(base, t).size() / 2);
    }
  }
}

TEST_CASE("scaled queries are exact, and the scale goes the other way") {
  for (const char* line :
       {"decode b=1 s_q=1 h_q=2 s_kv=64 topk=64", "decode b=1 s_q=1 h_q=2 s_kv=64 topk=64 q_dtype=fp16 kv_format=fp16 values=large_logits",
        "decode b=1 s_q=1 h_q=2 s_kv=64 topk=64 values=needle"}) {
    const int k = parse_line(line).values == Values::large_logits ? 1 : 3;
    const Inputs base = made(line, "base"), in = made(line, "scaled_" + std::to_string(k));
    CHECK(in.c.sm_scale == base.c.sm_scale / static_cast<float>(1 << k));
    CHECK(row_of(in, 5) == row_of(base, 5));
    for (int32_t h = 0; h < 2; ++h) {
      const auto q = q_of(base, 0, h), scaled = q_of(in, 0, h);
      for (int32_t c = 0; c < 576; ++c) REQUIRE(widen(base.c.q_dtype, scaled[c]) == widen(base.c.q_dtype, q[c]) * static_cast<float>(1 << k));
    }
  }
  CHECK_THROWS_AS(made("decode b=1 s_q=1 h_q=2 s_kv=64 topk=64 q_dtype=fp16 kv_format=fp16 values=large_logits", "scaled_3"), UsageError);
}

TEST_CASE("the second input has the shape of the first and nothing else of it") {
  for (const char* line : kLines) {
    const Inputs base = made(line, "base"), in = made(line, "second");
    CHECK(in.num_pages == base.num_pages);
    CHECK(in.max_pages == base.max_pages);
    CHECK(in.indices.size() == base.indices.size());
    CHECK(in.topk_length.size() == base.topk_length.size());
    CHECK(in.indices != base.indices);
    CHECK(row_of(in, 20) != row_of(base, 20));
    if (in.needle_keys.empty()) CHECK(q_of(in, 0, 0) != q_of(base, 0, 0));
  }
}

TEST_CASE("other splits are only other splits") {
  const Inputs base = made(kLines[1], "base"), in = made(kLines[1], "splits_7");
  CHECK(in.c.num_splits == 7);
  CHECK(in.indices == base.indices);
}

TEST_CASE("a changed argument changes every second row, the last one included, and no other") {
  const char* line = "decode b=4 s_q=1 h_q=4 s_kv=150 topk=70 topk_length=1 sink=mixed lens=full pattern=scattered seed=3";
  const Inputs base = made(line, "base");
  std::map<std::string, std::pair<int, int>> changed;  // rows (t, h) whose answer changes, of those with keys: even t, odd t
  CHECK(perturbations(base.c) == std::vector<std::string>{"kv", "indices", "q", "topk_length", "sink", "sm_scale"});
  for (const std::string& name : perturbations(base.c)) {
    INFO(name);
    const Inputs in = made(line, "perturb_" + name);
    CHECK((in.c.sm_scale != base.c.sm_scale) == (name == "sm_scale"));
    CHECK((in.topk_length != base.topk_length) == (name == "topk_length"));
    CHECK((in.sink != base.sink) == (name == "sink"));
    CHECK((in.indices != base.indices) == (name == "indices"));
    for (int32_t h = 0; h < 4; ++h) {
      if (name == "sink") CHECK((in.sink[h] != base.sink[h]) == (h % 2 == 1));
      for (int64_t t = 0; t < 4; ++t) CHECK((q_of(in, t, h) != q_of(base, t, h)) == (name == "q" && t % 2 == 1 && h % 2 == 1));
    }
    for (int64_t t = 0; t < 4; ++t) {
      const bool lists = name == "kv" || name == "indices" || name == "topk_length", empty = keys_of(base, t).empty();
      CHECK((keys_of(in, t) != keys_of(base, t)) == (lists && t % 2 == 1 && !empty));
    }
  }
  CHECK(keys_of(base, 3).size() > 1);
  CHECK(perturbations(parse_line("decode values=exact_mean")) == std::vector<std::string>{"kv", "indices"});
  CHECK_THROWS_WITH(made("decode", "perturb_sink"), "variant perturb_sink: this case has no such argument to change");
}

TEST_CASE("a changed q of the needle points at another key") {
  const char* line = "decode b=2 s_q=1 h_q=4 s_kv=150 topk=70 values=needle";
  const Inputs base = made(line, "base"), in = made(line, "perturb_q");
  for (int64_t t = 0; t < 2; ++t)
    for (int32_t h = 0; h < 4; ++h) {
      const bool touched = t == 1 && h % 2 == 1;
      CHECK((needle_slot(in, t, h) != needle_slot(base, t, h)) == touched);
      CHECK((q_of(in, t, h) != q_of(base, t, h)) == touched);
    }
}

TEST_CASE("poison is what it says at every alignment") {
  uint8_t bytes[67];
  poison_bytes(Poison::nan, 1, bytes, sizeof bytes);
  CHECK(std::all_of(std::begin(bytes), std::end(bytes), [](uint8_t byte) { return byte == 0xff; }));
  poison_bytes(Poison::huge, 1, bytes, sizeof bytes);
  int positive = 0, negative = 0;
  for (size_t at = 0; at + 4 <= sizeof bytes; ++at) {
    uint32_t word;
    memcpy(&word, bytes + at, 4);
    const float f32 = float_from_bits(word), bf16 = from_bf16(static_cast<uint16_t>(word)), fp16 = from_fp16(static_cast<uint16_t>(word));
    REQUIRE((std::isfinite(f32 * 448) && std::fabs(f32) > 1e30f));
    REQUIRE((std::isfinite(bf16) && std::fabs(bf16) > 1e30f));
    REQUIRE((std::isfinite(fp16) && std::fabs(fp16) > 30000));
    REQUIRE((bytes[at] & 0x7f) == 0x77);  // e4m3 240
    (f32 > 0 ? positive : negative)++;
  }
  CHECK(positive > 10);
  CHECK(negative > 10);
  for (uint64_t salt = 0; salt < 50; ++salt) {
    poison_bytes(Poison::numbers, salt, bytes, sizeof bytes);
    for (size_t at = 0; at + 4 <= sizeof bytes; ++at) {
      uint32_t word;
      memcpy(&word, bytes + at, 4);
      for (const float value : {float_from_bits(word), from_bf16(static_cast<uint16_t>(word)), from_fp16(static_cast<uint16_t>(word))})
        REQUIRE((std::fabs(value) >= 0x1p-15f && std::fabs(value) < 2));
      REQUIRE((bytes[at] & 0x78) == 0x38);  // e4m3 1 to 1.875
    }
  }
  const Inputs in = made(kLines[0], "poison_random"), nan = made(kLines[0], "base");
  std::vector<uint8_t> a(in.row_bytes), b(in.row_bytes);
  poison_row(in, 1, a.data());
  poison_row(in, 2, b.data());
  CHECK(a != b);
  poison_row(in, 1, b.data());
  CHECK(a == b);
  poison_row(nan, 1, a.data());
  CHECK(a[0] == 0xff);
}
