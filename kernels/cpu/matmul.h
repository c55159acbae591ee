// SPDX-License-Identifier: Apache-2.0
// The two products of attention on the first `keys` of a tile, fp32, in blocks of four heads. Heads and keys are padded to whole blocks by the
// caller.
#pragma once
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace smla::cpu {

inline constexpr int kTile = 64;      // keys of a tile
inline constexpr int kHeadBlock = 4;  // heads multiplied at once
inline constexpr int kKeyBlock = 2;   // and keys

/// Channels [begin, end) of every key count `scale[key * stride]` times.
struct ScaledChannels {
  int begin, end;
  const float* scale;  // null = 1
  int stride;
};

/// x[h][key] = sum over segments of scale * (q[h] . k[key]), eight fp32 lanes; 0 behind the keys.   q [heads][width], k [kTile][width], x
/// [heads][kTile].
inline void scores(const float* q, const float* k, int heads, int keys, int width, const ScaledChannels* segments, int num_segments, float* x) {
  for (int h = 0; h < heads; ++h) std::fill_n(x + h * kTile + keys, kTile - keys, 0.f);
  for (int h = 0; h < heads; h += kHeadBlock) {
    for (int key = 0; key < keys; key += kKeyBlock) {
      __m256 total[kHeadBlock][kKeyBlock] = {};
      for (int s = 0; s < num_segments; ++s) {
        const ScaledChannels& segment = segments[s];
        __m256 lanes[kHeadBlock][kKeyBlock] = {};
        for (int c = segment.begin; c < segment.end; c += 8)
          for (int j = 0; j < kKeyBlock; ++j) {
            const __m256 kv = _mm256_loadu_ps(k + int64_t{key + j} * width + c);
            for (int i = 0; i < kHeadBlock; ++i) lanes[i][j] = _mm256_fmadd_ps(_mm256_loadu_ps(q + int64_t{h + i} * width + c), kv, lanes[i][j]);
          }
        for (int j = 0; j < kKeyBlock; ++j) {
          const __m256 scale = _mm256_set1_ps(segment.scale ? segment.scale[(key + j) * segment.stride] : 1.f);
          for (int i = 0; i < kHeadBlock; ++i) total[i][j] = _mm256_fmadd_ps(scale, lanes[i][j], total[i][j]);
        }
      }
      for (int i = 0; i < kHeadBlock; ++i)
        for (int j = 0; j < kKeyBlock; ++j) {
          const __m128 half = _mm_add_ps(_mm256_castps256_ps128(total[i][j]), _mm256_extractf128_ps(total[i][j], 1));
          const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
          x[int64_t{h + i} * kTile + key + j] = _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
        }
    }
  }
}

/// acc[h] = acc[h] * factor[h] + norm * sum over keys of p[h][key] v[key], columns [begin, end), a multiple of 16.   p [heads][kTile], v
/// [kTile][width], acc [heads][d_v].
inline void weigh(const float* p, const float* v, int heads, int keys, int width, int begin, int end, const float* factor, float norm, float* acc,
                  int d_v) {
  for (int h = 0; h < heads; h += kHeadBlock) {
    for (int d = begin; d < end; d += 16) {
      __m256 part[kHeadBlock][2] = {};
      for (int key = 0; key < keys; ++key) {
        const float* row = v + int64_t{key} * width + d;
        const __m256 low = _mm256_loadu_ps(row), high = _mm256_loadu_ps(row + 8);
        for (int i = 0; i < kHeadBlock; ++i) {
          const __m256 weight = _mm256_broadcast_ss(p + int64_t{h + i} * kTile + key);
          part[i][0] = _mm256_fmadd_ps(weight, low, part[i][0]);
          part[i][1] = _mm256_fmadd_ps(weight, high, part[i][1]);
        }
      }
      for (int i = 0; i < kHeadBlock; ++i)
        for (int half = 0; half < 2; ++half) {
          float* out = acc + int64_t{h + i} * d_v + d + 8 * half;
          const __m256 old = _mm256_mul_ps(_mm256_loadu_ps(out), _mm256_set1_ps(factor[h + i]));
          _mm256_storeu_ps(out, _mm256_fmadd_ps(_mm256_set1_ps(norm), part[i][half], old));
        }
    }
  }
}

}  // namespace smla::cpu
