// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the value families, element by element, as plain inline functions: a CPU loop and a device kernel that call them get the same
// bits. Only exact operations: integers, powers of two, at most one fp32 multiplication, and an explicit round-to-nearest-even. No libm.
// The families and why each is there: README.md, "values".
#pragma once
#include <cstdint>
#include <cstring>

#include "cases/kv_format.h"
#include "cases/words.h"

#ifdef __CUDACC__
#define SMLA_HD __host__ __device__
#else
#define SMLA_HD
#endif

namespace smla {

// ---- The generator: r(seed, draw, i) = splitmix64(splitmix64(8 * seed + draw) + i). Any element at any time, in any order.

enum class Draw : uint64_t { k, q, scale, sink, pattern, pages, poison, family };

/// splitmix64's finaliser, a bijection of 64-bit words.
SMLA_HD constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
SMLA_HD inline uint64_t splitmix64(uint64_t z) { return mix64(z + 0x9e3779b97f4a7c15u); }
SMLA_HD inline uint64_t stream(uint64_t seed, Draw draw) { return splitmix64(8 * seed + static_cast<uint64_t>(draw)); }
SMLA_HD inline uint64_t draw_at(uint64_t stream, uint64_t i) { return splitmix64(stream + i); }

/// Bell-shaped integer in [-255, 255]: the sum of 8 uniform bytes, centred and scaled to a standard deviation of about 64.
SMLA_HD inline int32_t bell(uint64_t r) {
  int32_t sum = 0;
  for (int byte = 0; byte < 8; ++byte) sum += static_cast<int32_t>((r >> (8 * byte)) & 255);
  const int32_t value = (sum - 1020) * 64 / 209;  // 209 = the standard deviation of the sum; truncates towards 0
  return value > 255 ? 255 : value < -255 ? -255 : value;
}

/// murmur3's finaliser, a bijection of 32-bit words.
SMLA_HD inline uint32_t mix32(uint32_t h) {
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}

// ---- Bits and rounding.

SMLA_HD inline uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
SMLA_HD inline float float_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
/// 2^exponent, -126 <= exponent <= 127.
SMLA_HD inline float exp2i(int32_t exponent) { return float_from_bits(static_cast<uint32_t>(exponent + 127) << 23); }

/// Round to nearest even. Finite x only.
SMLA_HD inline uint16_t to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}
SMLA_HD inline float from_bf16(uint16_t bits) { return float_from_bits(static_cast<uint32_t>(bits) << 16); }

/// Round to nearest even, subnormals included. |x| < 65520.
SMLA_HD inline uint16_t to_fp16(float x) {
  const uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  const int32_t exponent = static_cast<int32_t>(magnitude >> 23) - 127;
  if (exponent < -25) return static_cast<uint16_t>(sign);
  if (exponent >= -14) return static_cast<uint16_t>(sign | (((magnitude + 0xfffu + (magnitude >> 13 & 1)) >> 13) - (112u << 10)));
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;  // subnormal: in units of 2^-24
  const int32_t shift = -1 - exponent;                               // 14 .. 24
  const uint32_t kept = significand >> shift, rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
  return static_cast<uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
}
SMLA_HD inline float from_fp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return float_from_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * exp2i(-24);
  return sign != 0 ? -magnitude : magnitude;
}

SMLA_HD inline uint16_t round_to(FloatType type, float x) { return type == FloatType::bf16 ? to_bf16(x) : to_fp16(x); }
SMLA_HD inline float widen(FloatType type, uint16_t bits) { return type == FloatType::bf16 ? from_bf16(bits) : from_fp16(bits); }

/// e4m3 code of an integer in [-255, 255], or of it times 2^-9 (`low`, which makes those below 8 subnormal). Round to nearest even.
SMLA_HD inline uint8_t e4m3_of(float integer, bool low) {
  const uint32_t bits = float_bits(integer), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  const uint32_t code = (magnitude + 0x7ffffu + (magnitude >> 20 & 1)) >> 20;  // 8 exponent bits of bias 127, 3 of fraction
  const uint32_t normal = code - ((low ? 129u : 120u) << 3), subnormal = low ? static_cast<uint32_t>(float_from_bits(magnitude)) : 0;
  return static_cast<uint8_t>(sign | (magnitude < float_bits(low ? 8.0f : 1.0f) ? subnormal : normal));
}

// ---- Poison.

/// What the slots that no row selects, page tails, stride gaps and guard rows hold.
enum class Poison : int32_t { nan, huge, random, numbers };
/// Bytes i .. i + 7 of a poisoned stretch, little endian; i is a multiple of 8 from the stretch's own begin.
SMLA_HD inline uint64_t poison_word(Poison poison, uint64_t salt, int64_t i) {
  switch (poison) {
    case Poison::nan:
      return ~uint64_t{0};
    case Poison::huge:
      return 0xf7f77777f7f77777u;
    case Poison::numbers:
      return (draw_at(salt, static_cast<uint64_t>(i)) & 0x8787878787878787u) | 0x3838383838383838u;
    default:
      return draw_at(salt, static_cast<uint64_t>(i));
  }
}

// ---- The families.

/// All that the families need of a case, as plain data that may be copied to a device. Made by value_spec().
struct ValueSpec {
  Values family;
  KvFormat kv_format;
  FloatType q_dtype, rope_dtype;
  bool pow2_scales;
  int32_t d_qk, h_q;
  int32_t tiles;             // ceil(s_kv / 64): the *_max families rise by tile of logical positions
  float sm_scale, q_factor;  // of the case itself, whatever a variant makes of sm_scale
  int32_t q_log2;            // a variant's q * 2^q_log2
  int32_t needle_log2;       // needle: q = 2^needle_log2 * k
  uint32_t needle_seed;
  uint64_t k_stream, q_stream, scale_stream;
  uint64_t outlier_lanes;  // 16-bit caches: in the j-th 64 latent channels it is channel (outlier_lanes >> 6 j) & 63
  int32_t outlier_group;   // fp8_656
};

constexpr int32_t kLatent = 512;  // d_v: the channels that are values as well as keys
constexpr int32_t kTilePositions = 64;

SMLA_HD inline bool is_needle(const ValueSpec& s) { return s.family == Values::needle || s.family == Values::tracer; }
SMLA_HD inline bool is_max_family(Values v) {
  return v == Values::rising_max || v == Values::falling_max || v == Values::sawtooth_max || v == Values::late_max;
}
/// Channel c's power of two, 2^-(5c mod 8): the values of a row live in different binades, so that fp32 sums round.
SMLA_HD inline float channel_scale(int32_t c) { return exp2i(-(5 * c & 7)); }

/// `outliers`: the channels where k is large and q small.
SMLA_HD inline bool is_outlier(const ValueSpec& s, int32_t c) {
  if (s.family != Values::outliers || c >= kLatent) return false;
  if (s.kv_format == KvFormat::fp8_656) return c / Fp8Row656::kGroup == s.outlier_group;
  return (c & 63) == static_cast<int32_t>(s.outlier_lanes >> (6 * (c / 64)) & 63);
}

/// `*_max`: what channel 512 adds to the logit of a key at this logical position.
SMLA_HD inline double max_logit(const ValueSpec& s, int32_t position) {
  const int32_t tile = position / kTilePositions, last = s.tiles - 1;
  switch (s.family) {
    case Values::rising_max:
      return last > 0 ? 4.0 * tile / last : 0.0;
    case Values::falling_max:
      return last > 0 ? 4.0 * (last - tile) / last : 0.0;
    case Values::sawtooth_max:
      return tile & 1 ? 4.0 : 0.0;
    default:
      return tile == last ? 20.0 : 0.0;  // late_max
  }
}

/// `needle`: the word whose 32 bits are the signs of channels 32 g .. 32 g + 31 of the row with this key.
SMLA_HD inline uint32_t needle_word(const ValueSpec& s, uint32_t key, int32_t g) {
  return mix32(key + (static_cast<uint32_t>(g) + s.needle_seed) * 0x9e3779b9u);
}
SMLA_HD inline bool needle_negative(const ValueSpec& s, uint32_t key, int32_t c) { return needle_word(s, key, c / 32) >> (c & 31) & 1; }
SMLA_HD inline float needle_magnitude(int32_t c) { return static_cast<float>(8 + (5 * c & 7)) * 0.125f; }
SMLA_HD inline float needle_group_scale(const ValueSpec& s, uint32_t key, int32_t group) {
  return (mix32(needle_word(s, key, 4 * group) + 1) & 1) != 0 ? 0.5f : 1.0f;
}
/// The value a kernel sees, decoded.
SMLA_HD inline float needle_value(const ValueSpec& s, uint32_t key, int32_t c) {
  const float magnitude = needle_magnitude(c);
  const float scale = s.kv_format == KvFormat::fp8_656 && c < kLatent ? needle_group_scale(s, key, c / Fp8Row656::kGroup) : 1.0f;
  return needle_negative(s, key, c) ? -magnitude * scale : magnitude * scale;
}

/// What the gaussian k and the scales are multiplied by, a power of two.
SMLA_HD inline float family_scale(const ValueSpec& s) {
  const bool fp16 = s.q_dtype == FloatType::fp16;
  if (s.family == Values::large_logits && fp16) return 16.0f;
  if (s.family == Values::tiny) return exp2i(fp16 ? -19 : -100);
  return 1.0f;
}

/// k[c] of the row with this key, as 16 bits: any channel of a 16-bit cache, the RoPE channels c >= 512 of fp8_656.
///   key: what the row's content is drawn from (its slot, unless a variant moved the row). position: its logical position in the request.
SMLA_HD inline uint16_t kv_value(const ValueSpec& s, int64_t key, int32_t position, int32_t c) {
  if (is_needle(s)) return round_to(s.rope_dtype, needle_value(s, static_cast<uint32_t>(key), c));
  const uint64_t r = draw_at(s.k_stream, key * s.d_qk + c);
  if (s.family == Values::exact_mean) return round_to(s.rope_dtype, static_cast<float>(1 + 2 * (r >> 58)));
  if (is_max_family(s.family) && c == kLatent)
    return round_to(s.rope_dtype, static_cast<float>(max_logit(s, position) / (16.0 * static_cast<double>(s.sm_scale))));
  const float x = static_cast<float>(bell(r)) * channel_scale(c);
  return round_to(s.rope_dtype, is_outlier(s, c) ? x * (100.0f / 64) : x * (family_scale(s) / 64));
}

/// fp8_656: every second group holds its codes 2^9 lower and its scale 2^9 higher: the same values, but all of e4m3's exponents are met, subnormals
/// too.
SMLA_HD inline bool has_low_codes(const ValueSpec& s, int32_t group) { return !is_needle(s) && (group & 1) != 0; }

/// fp8_656: the e4m3 code of latent channel c < 512.
SMLA_HD inline uint8_t kv_code(const ValueSpec& s, int64_t key, int32_t c) {
  if (is_needle(s)) return static_cast<uint8_t>((needle_negative(s, static_cast<uint32_t>(key), c) ? 0x80 : 0) | 0x38 | (5 * c & 7));
  const uint64_t r = draw_at(s.k_stream, key * s.d_qk + c);
  const float integer = s.family == Values::exact_mean ? static_cast<float>(1 + 2 * (r >> 61)) : static_cast<float>(bell(r));
  return e4m3_of(integer, has_low_codes(s, c / Fp8Row656::kGroup));
}

/// fp8_656: the scale of a group of 128 latent channels.
SMLA_HD inline float kv_scale(const ValueSpec& s, int64_t key, int32_t group) {
  if (is_needle(s)) return needle_group_scale(s, static_cast<uint32_t>(key), group);
  const uint64_t r = draw_at(s.scale_stream, key * Fp8Row656::kGroups + group);
  const int32_t up = has_low_codes(s, group) ? 9 : 0;
  if (s.family == Values::exact_mean) return exp2i(up - static_cast<int32_t>(r >> 62));
  const float scale = s.pow2_scales ? exp2i(up - 6 + static_cast<int32_t>(r >> 63))
                                    : static_cast<float>((1u << 23) + static_cast<uint32_t>(r >> 41)) * exp2i(up - 29);
  return is_outlier(s, group * Fp8Row656::kGroup) ? scale * (s.pow2_scales ? 128.0f : 100.0f) : scale * family_scale(s);
}

/// The power of two that a finished row of q is multiplied by: `large_logits` has three sizes of rows.
SMLA_HD inline int32_t q_log2_of(const ValueSpec& s, int64_t row) {
  if (s.family != Values::large_logits) return s.q_log2;
  return s.q_log2 + (s.q_dtype == FloatType::fp16 ? 5 : 9) + 3 * static_cast<int32_t>((row / s.h_q + row % s.h_q) % 3);
}

/// q[c] as 16 bits. row = t * h_q + h (of the case itself, whatever order a variant puts the batch in); needle_key: the key of the row it points at.
SMLA_HD inline uint16_t q_value(const ValueSpec& s, int64_t row, uint32_t needle_key, int32_t c) {
  if (s.family == Values::exact_mean) return 0;
  if (is_needle(s)) return round_to(s.q_dtype, needle_value(s, needle_key, c) * exp2i(s.needle_log2 + s.q_log2));
  if (is_max_family(s.family) && c == kLatent) return round_to(s.q_dtype, 16.0f * exp2i(s.q_log2));
  const uint64_t r = draw_at(s.q_stream, row * s.d_qk + c);
  uint16_t bits = round_to(s.q_dtype, static_cast<float>(bell(r)) * channel_scale(c) * s.q_factor);
  if (is_outlier(s, c)) bits = round_to(s.q_dtype, widen(s.q_dtype, bits) * exp2i(-5));
  const int32_t log2 = q_log2_of(s, row);
  return log2 == 0 ? bits : round_to(s.q_dtype, widen(s.q_dtype, bits) * exp2i(log2));
}

// ---- Whole rows, on the host (values.cc): the same bits, faster.

struct Case;
ValueSpec value_spec(const Case& c);
/// The row_bytes of one cached token: kv_value, kv_code and kv_scale in the byte layout of the case's KV format.
void write_kv_row(const ValueSpec& s, int64_t key, int32_t position, uint8_t* row);
/// The d_qk values of q_value.
void write_q_row(const ValueSpec& s, int64_t row_index, uint32_t needle_key, uint16_t* row);

}  // namespace smla
