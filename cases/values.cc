// SPDX-License-Identifier: Apache-2.0
#include "cases/values.h"

#include <cmath>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "cases/case.h"

namespace smla {
namespace {

constexpr int kMaxChannels = 576;

#ifdef __AVX2__
/// Low 64 bits of the products of four 64-bit lanes: AVX2 multiplies 32 by 32 bits only.
__m256i multiply_u64(__m256i a, uint64_t constant) {
  const __m256i low = _mm256_set1_epi64x(static_cast<int64_t>(constant)), high = _mm256_set1_epi64x(static_cast<int64_t>(constant >> 32));
  const __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), low), _mm256_mul_epu32(a, high));
  return _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64(cross, 32));
}

/// The byte sums of draw_at(stream, i) for the four 64-bit lanes i.
__m256i byte_sums(__m256i i) {
  __m256i z = _mm256_add_epi64(i, _mm256_set1_epi64x(static_cast<int64_t>(0x9e3779b97f4a7c15u)));
  z = multiply_u64(_mm256_xor_si256(z, _mm256_srli_epi64(z, 30)), 0xbf58476d1ce4e5b9u);
  z = multiply_u64(_mm256_xor_si256(z, _mm256_srli_epi64(z, 27)), 0x94d049bb133111ebu);
  z = _mm256_xor_si256(z, _mm256_srli_epi64(z, 31));
  return _mm256_sad_epu8(z, _mm256_setzero_si256());
}
#endif

/// x[c] = bell(draw_at(stream, first + c)) for c < n, n a multiple of 8.
void bell_row(uint64_t stream, uint64_t first, int n, float* x) {
#ifdef __AVX2__
  __m256i i = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(stream + first)), _mm256_setr_epi64x(0, 1, 4, 5));
  const __m256i two = _mm256_set1_epi64x(2), eight = _mm256_set1_epi64x(8);
  for (int c = 0; c < n; c += 8, i = _mm256_add_epi64(i, eight)) {
    const __m256i a = byte_sums(i), b = byte_sums(_mm256_add_epi64(i, two));  // a: lanes 0 1 4 5, b: lanes 2 3 6 7
    const __m256i sums = _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _MM_SHUFFLE(2, 0, 2, 0)));
    const __m256i centred = _mm256_sub_epi32(sums, _mm256_set1_epi32(1020));
    // |centred| * 64 / 209 truncated = (|centred| * 64 * 40137) >> 23 for every |centred| <= 1020 (tested)
    const __m256i quotient = _mm256_srli_epi32(_mm256_mullo_epi32(_mm256_abs_epi32(centred), _mm256_set1_epi32(64 * 40137)), 23);
    const __m256i value = _mm256_sign_epi32(_mm256_min_epi32(quotient, _mm256_set1_epi32(255)), centred);
    _mm256_storeu_ps(x + c, _mm256_cvtepi32_ps(value));
  }
#else
  for (int c = 0; c < n; ++c) x[c] = static_cast<float>(bell(draw_at(stream, first + c)));
#endif
}

/// 16-bit values from floats, as round_to does.
void round_row(FloatType type, const float* x, int n, uint16_t* row) {
  if (type == FloatType::bf16) {
    for (int c = 0; c < n; ++c) row[c] = to_bf16(x[c]);
    return;
  }
#ifdef __F16C__
  for (int c = 0; c < n; c += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + c), _mm256_cvtps_ph(_mm256_loadu_ps(x + c), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  for (int c = 0; c < n; ++c) row[c] = to_fp16(x[c]);
#endif
}

/// x[c] *= channel_scale(first + c) * factor, factor a power of two.
void scale_channels(int first, int n, float factor, float* x) {
  float scale[8];
  for (int c = 0; c < 8; ++c) scale[c] = channel_scale(first + c) * factor;
  for (int c = 0; c < n; c += 8)
    for (int lane = 0; lane < 8; ++lane) x[c + lane] *= scale[lane];
}

/// 16-bit values times 2^log2, as widen and round_to do.
void rescale_row(FloatType type, int32_t log2, int n, uint16_t* row) {
  float x[kMaxChannels];
#ifdef __F16C__
  if (type == FloatType::fp16)
    for (int c = 0; c < n; c += 8) _mm256_storeu_ps(x + c, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + c))));
  else
#endif
    for (int c = 0; c < n; ++c) x[c] = widen(type, row[c]);
  for (int c = 0; c < n; ++c) x[c] *= exp2i(log2);
  round_row(type, x, n, row);
}

/// x[c] = needle_value without the group's scale.
void needle_row(const ValueSpec& s, uint32_t key, float* x) {
  for (int g = 0; g < s.d_qk / 32; ++g) {
    const uint32_t word = needle_word(s, key, g);
    for (int bit = 0; bit < 32; ++bit) x[32 * g + bit] = float_from_bits(float_bits(needle_magnitude(bit)) | (word >> bit & 1) << 31);
  }
}

bool is_bell(const ValueSpec& s) { return !is_needle(s) && s.family != Values::exact_mean; }

}  // namespace

ValueSpec value_spec(const Case& c) {
  ValueSpec s{};
  s.family = c.values;
  s.kv_format = c.kv_format;
  s.q_dtype = c.q_dtype;
  s.rope_dtype = c.rope_dtype;
  s.pow2_scales = c.scales == Scales::pow2;
  s.d_qk = c.d_qk;
  s.h_q = c.h_q;
  s.tiles = (c.s_kv + kTilePositions - 1) / kTilePositions;
  s.sm_scale = c.sm_scale;
  const bool fp8 = c.kv_format == KvFormat::fp8_656;
  const double sm_scale = static_cast<double>(c.sm_scale);
  s.q_factor = static_cast<float>(2.0 / ((fp8 ? 920.0 : 560.0) * sm_scale));  // logits of standard deviation about 2
  s.needle_log2 = static_cast<int32_t>(std::ceil(std::log2(110.0 / (sm_scale * (fp8 ? 200.0 : 800.0)))));
  s.needle_seed = static_cast<uint32_t>(c.seed);
  s.k_stream = stream(c.seed, Draw::k);
  s.q_stream = stream(c.seed, Draw::q);
  s.scale_stream = stream(c.seed, Draw::scale);
  s.outlier_lanes = draw_at(stream(c.seed, Draw::family), 0);
  s.outlier_group = static_cast<int32_t>(draw_at(stream(c.seed, Draw::family), 1) % Fp8Row656::kGroups);
  return s;
}

void write_kv_row(const ValueSpec& s, int64_t key, int32_t position, uint8_t* row) {
  const bool fp8 = s.kv_format == KvFormat::fp8_656;
  const int first = fp8 ? kLatent : 0, n = s.d_qk - first;  // the channels that are stored as 16-bit values
  uint16_t values[kMaxChannels];
  float x[kMaxChannels];
  if (is_bell(s)) {
    bell_row(s.k_stream, key * s.d_qk, s.d_qk, x);
    scale_channels(first, n, family_scale(s) / 64, x + first);
  } else if (is_needle(s)) {
    needle_row(s, static_cast<uint32_t>(key), x);
  } else {
    for (int c = 0; c < s.d_qk; ++c) x[c] = static_cast<float>(1 + 2 * (draw_at(s.k_stream, key * s.d_qk + c) >> (c < first ? 61 : 58)));
  }
  for (int begin = 0; begin < first; begin += Fp8Row656::kGroup) {
    const bool low = has_low_codes(s, begin / Fp8Row656::kGroup);
    for (int c = begin; c < begin + Fp8Row656::kGroup; ++c) row[c] = e4m3_of(x[c], low);
  }
  round_row(s.rope_dtype, x + first, n, values);
  if (s.family == Values::outliers && !fp8)
    for (int lane = 0; lane < kLatent / 64; ++lane) {
      const int c = 64 * lane + static_cast<int>(s.outlier_lanes >> (6 * lane) & 63);
      values[c] = kv_value(s, key, position, c);
    }
  if (is_max_family(s.family)) values[kLatent - first] = kv_value(s, key, position, kLatent);

  memcpy(row + (fp8 ? Fp8Row656::kRopeOff : 0), values, sizeof(uint16_t) * n);
  for (int group = 0; fp8 && group < Fp8Row656::kGroups; ++group) {
    const float scale = kv_scale(s, key, group);
    memcpy(row + Fp8Row656::kScaleOff + 4 * group, &scale, sizeof scale);
  }
}

void write_q_row(const ValueSpec& s, int64_t row_index, uint32_t needle_key, uint16_t* row) {
  float x[kMaxChannels];
  if (s.family == Values::exact_mean) {
    memset(row, 0, sizeof(uint16_t) * s.d_qk);
    return;
  }
  if (is_needle(s)) {
    needle_row(s, needle_key, x);
    for (int group = 0; s.kv_format == KvFormat::fp8_656 && group < Fp8Row656::kGroups; ++group) {
      const float scale = needle_group_scale(s, needle_key, group);
      for (int c = group * Fp8Row656::kGroup; c < (group + 1) * Fp8Row656::kGroup; ++c) x[c] *= scale;
    }
    for (int c = 0; c < s.d_qk; ++c) x[c] *= exp2i(s.needle_log2 + s.q_log2);
    round_row(s.q_dtype, x, s.d_qk, row);
    return;
  }
  bell_row(s.q_stream, row_index * s.d_qk, s.d_qk, x);
  scale_channels(0, s.d_qk, 1.0f, x);
  for (int c = 0; c < s.d_qk; ++c) x[c] *= s.q_factor;
  round_row(s.q_dtype, x, s.d_qk, row);
  if (const int32_t log2 = q_log2_of(s, row_index); log2 != 0) rescale_row(s.q_dtype, log2, s.d_qk, row);
  if (is_max_family(s.family)) row[kLatent] = q_value(s, row_index, needle_key, kLatent);
  if (s.family == Values::outliers)
    for (int c = 0; c < kLatent; ++c)
      if (is_outlier(s, c)) row[c] = q_value(s, row_index, needle_key, c);
}

}  // namespace smla
