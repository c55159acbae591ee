// SPDX-License-Identifier: Apache-2.0
#include "reference/decode.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "smla_catch.h"

namespace smla {
namespace {

/// A floating-point code by arithmetic alone: (-1)^s 2^(E - bias) (1 + M / 2^m), or 2^(1 - bias) M / 2^m where E = 0.
double by_definition(int code, int exponent_bits, int mantissa_bits, int bias) {
  const int mantissa = code % (1 << mantissa_bits), exponent = code / (1 << mantissa_bits) % (1 << exponent_bits);
  const double fraction = mantissa / std::pow(2, mantissa_bits);
  const double value = exponent == 0 ? std::pow(2, 1 - bias) * fraction : std::pow(2, exponent - bias) * (1 + fraction);
  return code / (1 << (mantissa_bits + exponent_bits)) ? -value : value;
}

/// Equal as numbers, signs of zeros included; NaN equals NaN.
bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

int wrong_codes(const std::array<double, 256>& table) {
  int wrong = 0;
  for (int code = 0; code < 256; ++code) wrong += !same(table[code], (code & 0x7f) == 0x7f ? NAN : by_definition(code, 4, 3, 7));
  return wrong;
}

TEST_CASE("all 256 codes of e4m3 are what the format's text says") {
  CHECK(wrong_codes(kE4m3) == 0);
  // Values that the text states.
  CHECK(kE4m3[0x7e] == 448);
  CHECK(kE4m3[0x08] == 0x1p-6);
  CHECK(kE4m3[0x07] == 0.875 * 0x1p-6);
  CHECK(kE4m3[0x01] == 0x1p-9);
  CHECK(std::signbit(kE4m3[0x80]));
  CHECK(std::isnan(kE4m3[0x7f]));
  CHECK(std::isnan(kE4m3[0xff]));
}

TEST_CASE("one wrong code of e4m3 is noticed, whichever it is") {
  for (int code = 0; code < 256; ++code) {
    auto table = kE4m3;
    table[code] = std::isnan(table[code]) ? 480 : std::nextafter(table[code], 1000.0);
    REQUIRE(wrong_codes(table) == 1);
  }
}

TEST_CASE("all 65536 codes of fp16 and bf16 are what their formats say") {
  int wrong = 0;
  for (int code = 0; code < 65536; ++code) {
    const int magnitude = code & 0x7fff;
    const double inf = code & 0x8000 ? -INFINITY : INFINITY;
    wrong += !same(decode_fp16(static_cast<uint16_t>(code)), magnitude > 0x7c00 ? NAN : magnitude == 0x7c00 ? inf : by_definition(code, 5, 10, 15));
    wrong += !same(decode_bf16(static_cast<uint16_t>(code)), magnitude > 0x7f80 ? NAN : magnitude == 0x7f80 ? inf : by_definition(code, 8, 7, 127));
  }
  CHECK(wrong == 0);
}

TEST_CASE("a 656-byte row is 512 codes, 4 scales and 64 RoPE values") {
  Case c;
  c.kv_format = KvFormat::fp8_656;
  const float scale[4] = {0.3f, 1e-20f, 448, 0x1.fffffep-1f};
  for (const FloatType rope : {FloatType::bf16, FloatType::fp16}) {
    c.rope_dtype = rope;
    std::vector<uint8_t> row(656);
    for (int i = 0; i < 512; ++i) row[i] = static_cast<uint8_t>(i * 37 % 126);
    std::memcpy(row.data() + 512, scale, 16);
    for (int i = 0; i < 64; ++i) {
      const auto bits = static_cast<uint16_t>(0x3c00 + i);
      std::memcpy(row.data() + 528 + 2 * i, &bits, 2);
    }
    std::vector<double> values(576);
    decode_row(c, row.data(), values.data());
    for (int i = 0; i < 512; ++i) REQUIRE(values[i] == by_definition(i * 37 % 126, 4, 3, 7) * scale[i / 128]);  // exact: 4 + 24 bits
    for (int i = 0; i < 64; ++i) REQUIRE(values[512 + i] == (rope == FloatType::fp16 ? 1 + i / 1024.0 : 0x1p-7 * (1 + i / 128.0)));
  }
}

TEST_CASE("16-bit rows are their d_qk values, and a format that is not judged yet says so") {
  Case c;
  c.d_qk = 1100;  // longer than one pass of the decoder
  std::vector<uint16_t> row(c.d_qk);
  for (int i = 0; i < c.d_qk; ++i) row[i] = static_cast<uint16_t>(0x3f80 + i % 128);
  std::vector<double> values(c.d_qk);
  decode_row(c, reinterpret_cast<const uint8_t*>(row.data()), values.data());
  for (int i = 0; i < c.d_qk; ++i) REQUIRE(values[i] == 1 + i % 128 / 128.0);
  c.kv_format = KvFormat::fp8_584;
  CHECK_THROWS_WITH(decode_row(c, reinterpret_cast<const uint8_t*>(row.data()), values.data()), ContainsSubstring("fp8_584"));
}

}  // namespace
}  // namespace smla
