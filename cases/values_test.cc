// SPDX-License-Identifier: Apache-2.0
#include "cases/values.h"

#include <immintrin.h>

#include <cmath>
#include <vector>

#include "cases/case.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// Every family and format that may go together, as short case lines.
std::vector<Case> all_kinds() {
  std::vector<Case> cases;
  for (const std::string format : {"bf16", "fp16", "fp8_656"})
    for (const std::string q : {"bf16", "fp16"})
      for (const std::string_view values : Names<Values>::kAll)
        for (const std::string scales : {"arbitrary", "pow2"}) {
          try {
            cases.push_back(parse_line("decode b=3 s_q=2 h_q=5 s_kv=700 topk=600 q_dtype=" + q + " kv_format=" + format + " scales=" + scales +
                                       " pattern=sorted values=" + std::string(values)));
          } catch (const UsageError&) {}
        }
  return cases;
}

}  // namespace

TEST_CASE("rows are their elements, for every family and format") {
  const std::vector<Case> cases = all_kinds();
  REQUIRE(cases.size() == 2 * 11 + 2 * (8 + 11));  // fp8_656 with arbitrary scales has no needle, tracer, exact_mean
  for (const Case& c : cases) {
    INFO(to_line(c));
    const ValueSpec s = value_spec(c);
    const bool fp8 = c.kv_format == KvFormat::fp8_656;
    for (const int64_t key : {int64_t{0}, int64_t{699}, int64_t{7654321}}) {
      const int32_t position = static_cast<int32_t>(key % 700);
      std::vector<uint8_t> row(row_bytes(c.kv_format, c.d_qk)), built(row.size());
      write_kv_row(s, key, position, row.data());
      for (int32_t channel = 0; channel < c.d_qk; ++channel) {
        if (fp8 && channel < 512) built[channel] = kv_code(s, key, channel);
        else {
          const uint16_t value = kv_value(s, key, position, channel);
          memcpy(built.data() + (fp8 ? 528 + 2 * (channel - 512) : 2 * channel), &value, 2);
        }
      }
      for (int32_t group = 0; fp8 && group < 4; ++group) {
        const float scale = kv_scale(s, key, group);
        memcpy(built.data() + 512 + 4 * group, &scale, 4);
      }
      REQUIRE(row == built);
    }
    for (const int32_t q_log2 : {0, 1})
      for (const int64_t row_index : {0, 7, 29}) {
        ValueSpec scaled = s;
        scaled.q_log2 = q_log2;
        std::vector<uint16_t> row(c.d_qk), built(c.d_qk);
        write_q_row(scaled, row_index, 1234567, row.data());
        for (int32_t channel = 0; channel < c.d_qk; ++channel) built[channel] = q_value(scaled, row_index, 1234567, channel);
        REQUIRE(row == built);
      }
  }
}

namespace {

uint64_t fnv(uint64_t hash, const void* bytes, size_t n) {
  for (size_t i = 0; i < n; ++i) hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * 0x100000001b3u;
  return hash;
}

struct Golden {
  const char *values, *kv_format, *q_dtype;
  uint64_t kv, q;
};
// Hashes of two cached rows (keys 123457 and 64 at positions 699 and 130) and of q row 17, from a model of the README's text in exact rational
// arithmetic.
const Golden kGolden[] = {
    {"gaussian", "bf16", "bf16", 0xdc93201de6a1bb87u, 0x69e514f3f0ef69b9u},
    {"gaussian", "fp16", "fp16", 0x0b2c4a5c35ee91f6u, 0x24341eb4dac8527du},
    {"gaussian", "fp8_656", "bf16", 0xdd896e43a2b7ad57u, 0xc86b75a37cd4a612u},
    {"gaussian", "fp8_656", "fp16", 0x930afdba9486a8e4u, 0x5189dbba0ffef7b5u},
    {"needle", "bf16", "bf16", 0x770b9c4c894b1225u, 0x74c484a85f93e7a5u},
    {"needle", "fp16", "fp16", 0x4f881cb8d28dfd25u, 0x1682d6b6922a8625u},
    {"needle", "fp8_656", "bf16", 0xac4c20d0ea7aac65u, 0xfe38302b1a97aaa5u},
    {"needle", "fp8_656", "fp16", 0x526d6f64d0462165u, 0xb512934cd2b1f725u},
    {"tracer", "bf16", "bf16", 0x770b9c4c894b1225u, 0x74c484a85f93e7a5u},
    {"tracer", "fp16", "fp16", 0x4f881cb8d28dfd25u, 0x1682d6b6922a8625u},
    {"tracer", "fp8_656", "bf16", 0xac4c20d0ea7aac65u, 0xfe38302b1a97aaa5u},
    {"tracer", "fp8_656", "fp16", 0x526d6f64d0462165u, 0xb512934cd2b1f725u},
    {"exact_mean", "bf16", "bf16", 0xdfa86f9e34bb1604u, 0x36fe4d3f1c233d25u},
    {"exact_mean", "fp16", "fp16", 0xd51165b9bf9a4f08u, 0x36fe4d3f1c233d25u},
    {"exact_mean", "fp8_656", "bf16", 0xe185f753f1ef25a9u, 0x36fe4d3f1c233d25u},
    {"exact_mean", "fp8_656", "fp16", 0x074914439cd1f597u, 0x36fe4d3f1c233d25u},
    {"rising_max", "bf16", "bf16", 0x382b04faddce61d3u, 0x698b6dc88aca4e94u},
    {"rising_max", "fp16", "fp16", 0x2cf03b3374d9fda1u, 0x67795a65eb65210fu},
    {"rising_max", "fp8_656", "bf16", 0xc6dc6d43785d47bbu, 0xf5a464eed113e39eu},
    {"rising_max", "fp8_656", "fp16", 0x335acdf74868962fu, 0xace1ea9bad45648cu},
    {"falling_max", "bf16", "bf16", 0xe4dc154749ab17a4u, 0x698b6dc88aca4e94u},
    {"falling_max", "fp16", "fp16", 0xac49cb24781b9ba9u, 0x67795a65eb65210fu},
    {"falling_max", "fp8_656", "bf16", 0xb0ab955f47026ea4u, 0xf5a464eed113e39eu},
    {"falling_max", "fp8_656", "fp16", 0xfb9a6594c84d09fbu, 0xace1ea9bad45648cu},
    {"sawtooth_max", "bf16", "bf16", 0xeac04231bf89646du, 0x698b6dc88aca4e94u},
    {"sawtooth_max", "fp16", "fp16", 0x30fa5627ceff4abdu, 0x67795a65eb65210fu},
    {"sawtooth_max", "fp8_656", "bf16", 0xb68fc249bce0bb6du, 0xf5a464eed113e39eu},
    {"sawtooth_max", "fp8_656", "fp16", 0x951e9ddaad44283bu, 0xace1ea9bad45648cu},
    {"late_max", "bf16", "bf16", 0x62989a2e2a768569u, 0x698b6dc88aca4e94u},
    {"late_max", "fp16", "fp16", 0x6930b76e62f53cc8u, 0x67795a65eb65210fu},
    {"late_max", "fp8_656", "bf16", 0x5cc5b2e2b7d030a1u, 0xf5a464eed113e39eu},
    {"late_max", "fp8_656", "fp16", 0x94732454c2f4c1deu, 0xace1ea9bad45648cu},
    {"large_logits", "bf16", "bf16", 0xdc93201de6a1bb87u, 0x998335186156336eu},
    {"large_logits", "fp16", "fp16", 0xbeef2b6bae332b56u, 0xdc3fb10c96b77b99u},
    {"large_logits", "fp8_656", "bf16", 0xdd896e43a2b7ad57u, 0x7762c7a976d4e08du},
    {"large_logits", "fp8_656", "fp16", 0x2c50a139d94b4f44u, 0x04fa15b9023198a1u},
    {"outliers", "bf16", "bf16", 0x5dad007c8894cb37u, 0xa368e5c895f1b56bu},
    {"outliers", "fp16", "fp16", 0xe59bf41130cac2b5u, 0xb6250256ec914b25u},
    {"outliers", "fp8_656", "bf16", 0xa51e50474989dba1u, 0x43081f27ae1b2b20u},
    {"outliers", "fp8_656", "fp16", 0xc115351954737ff6u, 0x12caca2bdb615f92u},
    {"tiny", "bf16", "bf16", 0x871f0bb833403797u, 0x69e514f3f0ef69b9u},
    {"tiny", "fp16", "fp16", 0xbc030a570bdecd2cu, 0x24341eb4dac8527du},
    {"tiny", "fp8_656", "bf16", 0x0789a488a99d78bfu, 0xc86b75a37cd4a612u},
    {"tiny", "fp8_656", "fp16", 0x6ade6a2cc84a442au, 0x5189dbba0ffef7b5u},
};

}  // namespace

TEST_CASE("rows have the bits of the definition") {
  for (const Golden& golden : kGolden) {
    INFO(golden.values << ' ' << golden.kv_format << ' ' << golden.q_dtype);
    Case c = parse_line("decode b=3 s_q=2 h_q=5 s_kv=700 topk=600 sm_scale=0.07216878 pattern=sorted seed=5");
    c.values = parse_enum<Values>("values", golden.values);
    c.kv_format = parse_enum<KvFormat>("kv_format", golden.kv_format);
    c.q_dtype = c.rope_dtype = parse_enum<FloatType>("q_dtype", golden.q_dtype);
    const ValueSpec s = value_spec(c);
    uint8_t row[1152];
    uint64_t hash = 0xcbf29ce484222325u;
    write_kv_row(s, 123457, 699, row);
    hash = fnv(hash, row, row_bytes(c.kv_format, 576));
    write_kv_row(s, 64, 130, row);
    CHECK(fnv(hash, row, row_bytes(c.kv_format, 576)) == golden.kv);
    uint16_t q[576];
    write_q_row(s, 17, 999, q);
    CHECK(fnv(0xcbf29ce484222325u, q, sizeof q) == golden.q);
  }
}

TEST_CASE("the generator and the integers have their literal values") {
  CHECK(draw_at(stream(7, Draw::q), 0) == 0x49b6a28672a03c15u);
  CHECK(draw_at(stream(7, Draw::q), 1) == 0x00987a93f0385155u);
  CHECK(draw_at(stream(7, Draw::q), uint64_t{1} << 40) == 0x10c15dec04c422b9u);
  const int32_t bells[] = {-60, -40, 2, -87, 104, 127, 14, -78, -56, 12, -74, 43};
  for (int i = 0; i < 12; ++i) CHECK(bell(draw_at(stream(1, Draw::k), i)) == bells[i]);
  CHECK(mix32(1) == 0x514e28b7u);
  CHECK(bell(0) == -255);
  CHECK(bell(~uint64_t{0}) == 255);
  for (uint32_t centred = 0; centred <= 1020; ++centred)
    REQUIRE(centred * 64 * 40137u >> 23 == centred * 64 / 209);  // what the vector code divides by
}

TEST_CASE("16-bit conversions: every value comes back, and what lies between is rounded to nearest even") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = _cvtsh_ss(half);
    if (std::isfinite(wide)) {
      REQUIRE(float_bits(from_fp16(half)) == float_bits(wide));
      REQUIRE(to_fp16(wide) == half);
    }
    if ((bits & 0x7f80) != 0x7f80) REQUIRE(to_bf16(from_bf16(half)) == half);
  }
  for (uint32_t i = 0; i < 1000000; ++i) {
    const float x = static_cast<float>(static_cast<int32_t>(splitmix64(i) >> 32)) * exp2i(-16 - static_cast<int32_t>(i % 40));
    REQUIRE(to_fp16(x) == _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
  }
  CHECK(to_bf16(1.00390625f) == 0x3f80);  // 1 + 2^-8, a tie: to even
  CHECK(to_bf16(1.01171875f) == 0x3f82);  // 1 + 3 * 2^-8, a tie: to even
  CHECK(to_bf16(1.003906369f) == 0x3f81);
  CHECK(to_fp16(0x1p-25f) == 0);  // half the smallest subnormal, a tie: to even
  CHECK(to_fp16(0x1.8p-24f) == 2);
}

TEST_CASE("e4m3 codes of integers, and of integers times 2^-9, are the nearest ones") {
  const auto value = [](int code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    return (code & 0x80 ? -1 : 1) * (exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10));
  };
  for (int i = -255; i < 2 * 256; ++i) {
    const bool low = i >= 256;
    const int integer = low ? 2 * (i - 256) - 255 : i;
    const int code = e4m3_of(static_cast<float>(integer), low);
    const double wanted = low ? integer / 512.0 : integer;
    if (integer == 0) {
      REQUIRE(code == 0);
      continue;
    }
    const double error = std::fabs(value(code) - wanted);
    for (int other = 0; other < 256; ++other) {
      if ((other & 0x7f) == 0x7f) continue;  // nan
      const double its_error = std::fabs(value(other) - wanted);
      REQUIRE(error <= its_error);
      if (error == its_error && other != code) REQUIRE(code % 2 == 0);
    }
  }
}

TEST_CASE("gaussian logits have a standard deviation of about 2 in every format") {
  for (const std::string format : {"kv_format=bf16", "q_dtype=fp16 kv_format=fp16", "kv_format=fp8_656", "kv_format=fp8_656 scales=pow2"})
    for (const std::string sm_scale : {"0.0625", "0.07216878", "0.3"}) {
      const Case c = parse_line("decode b=1 s_q=1 h_q=8 s_kv=4096 topk=64 " + format + " sm_scale=" + sm_scale);
      const ValueSpec s = value_spec(c);
      const auto decoded = [&](int64_t key, int32_t ch) {
        if (c.kv_format != KvFormat::fp8_656 || ch >= 512) return static_cast<double>(widen(c.rope_dtype, kv_value(s, key, 0, ch)));
        const int code = kv_code(s, key, ch);
        const double magnitude = (code & 0x78) == 0 ? std::ldexp(code & 7, -9) : std::ldexp(8 + (code & 7), (code >> 3 & 15) - 10);
        return (code & 0x80 ? -magnitude : magnitude) * static_cast<double>(kv_scale(s, key, ch / 128));
      };
      double logits[8][256] = {}, sum = 0, sum2 = 0;
      for (int32_t ch = 0; ch < 576; ++ch) {
        double q[8];
        for (int64_t row = 0; row < 8; ++row) q[row] = static_cast<double>(widen(c.q_dtype, q_value(s, row, 0, ch)));
        for (int64_t key = 0; key < 256; ++key) {
          const double k = decoded(key, ch);
          for (int64_t row = 0; row < 8; ++row) logits[row][key] += k * q[row] * static_cast<double>(c.sm_scale);
        }
      }
      for (const auto& row : logits)
        for (const double logit : row) sum += logit, sum2 += logit * logit;
      const double n = 256 * 8, mean = sum / n, deviation = std::sqrt(sum2 / n - mean * mean);
      INFO(to_line(c) << " mean " << mean << " deviation " << deviation);
      CHECK(std::fabs(mean) < 0.3);
      CHECK(deviation > 1.8);
      CHECK(deviation < 2.25);
    }
}

TEST_CASE("pow2 scales are powers of two in every family") {
  for (const std::string values : {"gaussian", "needle", "exact_mean", "large_logits", "outliers", "tiny"})
    for (const std::string q : {"bf16", "fp16"}) {
      const ValueSpec s =
          value_spec(parse_line("decode b=1 s_q=1 h_q=1 s_kv=64 topk=64 kv_format=fp8_656 scales=pow2 q_dtype=" + q + " values=" + values));
      for (int64_t key = 0; key < 100; ++key)
        for (int32_t group = 0; group < 4; ++group) REQUIRE((float_bits(kv_scale(s, key, group)) & 0x7fffff) == 0);
    }
}

TEST_CASE("arbitrary scales are no powers of two, pow2 scales are") {
  const Case c = parse_line("decode b=1 s_q=1 h_q=1 s_kv=64 topk=64 kv_format=fp8_656");
  ValueSpec s = value_spec(c);
  int powers = 0;
  for (int64_t key = 0; key < 1000; ++key)
    for (int32_t group = 0; group < 4; ++group) {
      s.pow2_scales = false;
      const float scale = kv_scale(s, key, group);
      const float up = group & 1 ? 0x1p9f : 1;  // whose codes are 2^9 lower
      REQUIRE((scale >= up * 0x1p-6f && scale < up * 0x1p-5f));
      powers += (float_bits(scale) & 0x7fffff) == 0;
      s.pow2_scales = true;
      REQUIRE((kv_scale(s, key, group) == up * 0x1p-6f || kv_scale(s, key, group) == up * 0x1p-5f));
    }
  CHECK(powers < 3);
}
