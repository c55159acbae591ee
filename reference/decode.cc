// SPDX-License-Identifier: Apache-2.0
#include "reference/decode.h"

#include <bit>
#include <cstring>
#include <string>

namespace smla {
namespace {

constexpr double e4m3(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<double>(uint64_t{0x7ff8'0000'0000'0000});
  double value = exponent == 0 ? mantissa / 8.0 : 1 + mantissa / 8.0;
  for (int e = exponent == 0 ? 1 : exponent; e < 7; ++e) value /= 2;
  for (int e = exponent; e > 7; --e) value *= 2;
  return code & 0x80 ? -value : value;
}

constexpr std::array<double, 256> e4m3_table() {
  std::array<double, 256> table{};
  for (int code = 0; code < 256; ++code) table[code] = e4m3(code);
  return table;
}

void decode_fp8_656(const uint8_t* row, FloatType rope_dtype, double* values) {
  // 512 e4m3 codes | 4 fp32 scales, one per 128 codes | 64 values of 16 bits. All little-endian.
  float scale[4];
  std::memcpy(scale, row + 512, sizeof scale);
  for (int group = 0; group < 4; ++group)
    for (int c = 128 * group; c < 128 * (group + 1); ++c) values[c] = kE4m3[row[c]] * static_cast<double>(scale[group]);
  uint16_t rope[64];
  std::memcpy(rope, row + 528, sizeof rope);
  decode16(rope, rope_dtype, 64, values + 512);
}

}  // namespace

constinit const std::array<double, 256> kE4m3 = e4m3_table();

double decode_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

double decode_fp16(uint16_t bits) {
  const uint64_t sign = uint64_t{bits & 0x8000u} << 48, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 31) return std::bit_cast<double>(sign | 0x7ff0'0000'0000'0000 | mantissa << 42);
  if (exponent == 0) return std::bit_cast<double>(sign | std::bit_cast<uint64_t>(static_cast<double>(mantissa) * 0x1p-24));
  return std::bit_cast<double>(sign | (exponent - 15 + 1023) << 52 | mantissa << 42);
}

void decode16(const uint16_t* bits, FloatType type, int64_t n, double* values) {
  if (type == FloatType::bf16)
    for (int64_t i = 0; i < n; ++i) values[i] = decode_bf16(bits[i]);
  else
    for (int64_t i = 0; i < n; ++i) values[i] = decode_fp16(bits[i]);
}

void decode_row(const Case& c, const uint8_t* row, double* values) {
  switch (c.kv_format) {
    case KvFormat::bf16:
    case KvFormat::fp16: {
      uint16_t bits[1024];
      for (int done = 0; done < c.d_qk; done += 1024) {
        const int n = std::min(1024, c.d_qk - done);
        std::memcpy(bits, row + 2 * done, 2 * n);
        decode16(bits, c.kv_format == KvFormat::bf16 ? FloatType::bf16 : FloatType::fp16, n, values + done);
      }
      return;
    }
    case KvFormat::fp8_656:
      return decode_fp8_656(row, c.rope_dtype, values);
    default:
      throw UsageError("kv_format=" + std::string(name_of(c.kv_format)) + ": this format is not judged yet");
  }
}

}  // namespace smla
