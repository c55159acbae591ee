// SPDX-License-Identifier: Apache-2.0
// The number formats of a kernel: 16-bit and e4m3 codes to float and back, round to nearest even, and an exp that vectorises.
#pragma once
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cases/contract.h"

namespace smla::cpu {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline float from_bf16(uint16_t code) { return std::bit_cast<float>(uint32_t{code} << 16); }
inline float from_fp16(uint16_t code) { return _cvtsh_ss(code); }
inline float from_16(FloatType type, uint16_t code) { return type == FloatType::bf16 ? from_bf16(code) : from_fp16(code); }

/// NaN stays NaN; overflow goes to infinity.
inline uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}
inline uint16_t to_fp16(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
inline uint16_t to_16(FloatType type, float x) { return type == FloatType::bf16 ? to_bf16(x) : to_fp16(x); }

/// Nearest e4m3 value (largest 448, smallest 2^-9), saturating.
inline float round_e4m3(float x) {
  const float magnitude = std::fabs(x);
  if (!(magnitude < 464.f)) return std::isnan(x) ? x : std::copysign(448.f, x);
  if (magnitude < 0x1p-6f) return std::copysign(std::nearbyint(magnitude * 0x1p9f) * 0x1p-9f, x);
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7ffff + ((bits >> 20) & 1)) & 0xfff00000u);
}

/// x as it comes back from a register of that type. `q`: the type behind Rounding::q.
inline float rounded(float x, Rounding type, FloatType q) {
  switch (type) {
    case Rounding::exact:
    case Rounding::fp32:
      return x;
    case Rounding::bf16:
      return from_bf16(to_bf16(x));
    case Rounding::fp16:
      return from_fp16(to_fp16(x));
    case Rounding::e4m3:
      return round_e4m3(x);
    case Rounding::q:
      return from_16(q, to_16(q, x));
  }
  return x;
}

/// n 16-bit values to float. n is a multiple of 8.
inline void decode_16(FloatType type, const uint16_t* codes, float* out, int n) {
  if (type == FloatType::bf16) {
    for (int i = 0; i < n; ++i) out[i] = from_bf16(codes[i]);
  } else {
    for (int i = 0; i < n; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i))));
  }
}

/// n e4m3 codes to float, through fp16: the same bits one exponent bias (2^8) apart; magnitude 0x7f is NaN. n is a multiple of 8.
inline void decode_e4m3(const uint8_t* codes, float* out, int n) {
  const __m128i magnitude = _mm_set1_epi16(0x7f), sign = _mm_set1_epi16(0x80), half_nan = _mm_set1_epi16(0x7e00);
  for (int i = 0; i < n; i += 8) {
    const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i)));
    const __m128i low = _mm_and_si128(wide, magnitude);
    const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(low, magnitude), half_nan);
    const __m128i half = _mm_or_si128(_mm_or_si128(_mm_slli_epi16(low, 7), _mm_slli_epi16(_mm_and_si128(wide, sign), 8)), nan);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.f)));
  }
}

/// exp(x), 1 ulp; results below 2^-126 are 0; exp(-inf) = 0, exp(+inf) = inf, exp(NaN) = NaN. Branch-free, so that a loop over it vectorises.
inline float fast_exp(float x) {
  const float n = (x * 1.44269504f + 12582912.f) - 12582912.f;  // nearest integer to x / ln 2
  float r = std::fma(n, -0.693145752f, x);
  r = std::fma(n, -1.42860682e-6f, r);  // ln 2 in two parts, the first of 16 bits
  float poly = 1.98909908e-4f;          // Chebyshev fit of (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, to 1.4e-9
  poly = std::fma(poly, r, 1.39336500e-3f);
  poly = std::fma(poly, r, 8.33331093e-3f);
  poly = std::fma(poly, r, 4.16664649e-2f);
  poly = std::fma(poly, r, 1.66666667e-1f);
  poly = std::fma(poly, r, 5.00000001e-1f);
  const float e = std::fma(poly, r * r, r) + 1.f;
  const float clamped = n < -126.f ? -126.f : n > 127.f ? 127.f : n;
  const float scale = std::bit_cast<float>((static_cast<int32_t>(clamped) + 127) << 23);
  const float value = e * scale;
  return x < -87.33654f ? 0.f : x > 88.37626f ? kInf : value;
}

/// Dot product over n channels (a multiple of 8) in eight fp32 lanes.
inline float dot(const float* a, const float* b, int n) {
  float lanes[8] = {};
  for (int c = 0; c < n; c += 8)
    for (int i = 0; i < 8; ++i) lanes[i] = std::fma(a[c + i], b[c + i], lanes[i]);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// Sum of n floats in eight lanes.
inline float sum(const float* a, int64_t n) {
  float lanes[8] = {};
  const int64_t whole = n / 8 * 8;
  for (int64_t i = 0; i < whole; i += 8)
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += a[i + lane];
  for (int64_t i = whole; i < n; ++i) lanes[i - whole] += a[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace smla::cpu
