// SPDX-License-Identifier: Apache-2.0
// Split MLA decode by mma.sync, sm_80 to sm_120. One CTA = (token, block of heads, slice of the token's list), 4 warps for each group of heads.
//
// Warp w of a group owns latent columns [128 w, 128 w + 128) and RoPE columns [16 w, 16 w + 16), in Q K and in P V:
//   Q K   operands swapped: tokens on M, heads on N = 8, so that 8 heads waste nothing. A warp's slice of Q stays in registers.
//         For fp8_656 a slice is one scale group: the fp32 scale multiplies the partial logit.
//   meet  the partial logits of the four warps are added through shared memory, one barrier a tile; every warp does the softmax for itself.
//   P V   latent columns on M, by ldmatrix.trans of the SAME rows (K is loaded once); P is already the B fragment.
//         For fp8_656 the scale is folded into P, relative to a running power of two, so that any positive fp32 scale is as good as 1.
// Rows arrive in a ring of kStages tiles: one bulk copy each (sm_90+), or 16-byte cp.async. All warps issue copies, right after the barrier
// that shows that everybody has left the stage. full[s]: the rows of stage s have landed. There is no "empty" barrier and no producer warp.
// Invalid entry: the row is zero-filled in shared memory AND its logit gets -inf after scaling, because 0 * NaN = NaN.
// Where the splits of a token merge: MergeBy in config.h.
// The softmax reference is lazy: it moves only when exceeded by 2^kLazy. Any reference is exact; P may then exceed 1 (contract: p_max = any).
// Bound: README, "the two numbers".
#pragma once
#include <cooperative_groups.h>

#include "kernels/common/combine.cuh"
#include "kernels/sparse_mma/config.h"

namespace smla::cuda {

struct MmaParams {
  Job job;
  Partials partials;
  int32_t head_blocks, num_splits;
  MergeBy merge;
};

inline constexpr float kFarBelow = -1e30f;  // the reference before any key: finite, so that differences are never NaN
inline constexpr float kLazy = 3.f;
inline constexpr int kFp16Shift = 12;  // fp16 P is kept at 2^12 times its value (2^15 at most): small weights stay normal numbers

/// Place of token t (of 16) in a B fragment's order: a thread's four tokens 2j, 2j+8, 2j+1, 2j+9 are neighbours.
__host__ __device__ constexpr int fragment_place(int t) { return t < 8 ? 4 * (t >> 1) + 2 * (t & 1) : 4 * ((t - 8) >> 1) + 2 * (t & 1) + 1; }
/// Row of the logits buffer that holds head h (of 8): with the permuted 16-byte chunks, neither stores nor loads meet bank conflicts.
__host__ __device__ constexpr int logits_row(int h) { return h ^ ((h >> 1) & 1); }

template <class C>
__device__ __forceinline__ void mma_latent(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma<C::kFp16>(c, a, b[0], b[1]);
}

// ---- the ring: who fetches which row, and when -------------------------------------------------------------------------------------------
template <class C>
struct Gather {
  static constexpr int kRows = C::kRowsPerWarp, kSpan = C::kTilesPerRegister;
  const Keys& keys;
  typename C::Shared& shared;
  const int32_t* list;
  int begin, end, tiles, lane, warp, row;  // entries [begin, end); row: this lane's row of a tile
  uint32_t current;                        // number of this lane's row of tile (lane / kRows) of the present span of kSpan tiles
  int next;                                // list element of the next span, in flight

  __device__ __forceinline__ int entry(int span) const { return begin + (span * kSpan + lane / kRows) * C::kTokens + row; }
  __device__ __forceinline__ int load(int span) const { return entry(span) < end ? load_entry(keys, list, entry(span)) : -1; }
  __device__ __forceinline__ void start() {
    const int first = load(0);
    next = load(1);
    current = row_number(keys, first, entry(0));
  }

  /// Starts the copies of a tile. Its stage must have been left by every warp. Tiles are issued in order.
  __device__ __forceinline__ void issue(int tile) {
    if (tile >= tiles) return;
    const int stage = tile % C::kStages, place = tile % kSpan;
    if (place == 0 && tile) {
      const int span = tile / kSpan;
      current = row_number(keys, next, entry(span));
      next = load(span + 1);
    }
    const bool mine = lane / kRows == place, valid = current != kNoRow;
    const unsigned invalid = __ballot_sync(~0u, mine && !valid) >> (place * kRows);
    if (mine) shared.mask[stage][(row & ~15) + fragment_place(row & 15)] = valid ? 0.f : -__int_as_float(0x7f800000);
    const uint32_t bar = shared_address(&shared.full[stage]), dst = shared_address(shared.rows[stage]) + warp * kRows * C::kRowPitch;
    uint32_t number[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) number[r] = __shfl_sync(~0u, current, place * kRows + r);
    if constexpr (kHasBulk) {
      if (invalid) zero_rows(stage, invalid);
      if (elect_one()) {
        mbar_arrive_expect_tx(bar, (kRows - __popc(invalid)) * keys.row_bytes);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (!(invalid >> r & 1)) bulk_copy(dst + r * C::kRowPitch, row_at(keys, number[r]), keys.row_bytes, bar);
      }
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const bool some = number[r] != kNoRow;
        const uint8_t* src = row_at(keys, some ? number[r] : 0);
        for (int c = lane * 16; c < keys.row_bytes; c += 512) copy16(dst + r * C::kRowPitch + c, src + (some ? c : 0), some ? 16 : 0);
      }
      copy16_arrive(bar);
    }
  }
  __device__ __forceinline__ void zero_rows(int stage, unsigned invalid) {
#pragma unroll 1
    for (; invalid; invalid &= invalid - 1) {
      uint8_t* dst = shared.rows[stage] + (warp * kRows + __ffs(invalid) - 1) * C::kRowPitch;
#pragma unroll 1
      for (int c = lane * 16; c < keys.row_bytes; c += 512) *reinterpret_cast<uint4*>(dst + c) = make_uint4(0, 0, 0, 0);
    }
    fence_proxy_async();  // before a later bulk copy into the same place
    __syncwarp();         // the arrival of the elected lane releases them to the others
  }
};

// ---- Q: B fragments of the warp's slice ------------------------------------------------------------------------------------------------
template <class C>
struct Query {
  uint32_t latent[8][C::kTiles8][2], rope[C::kTiles8][2];
  float multiplier[C::kTiles8][2];  // fp8_656: undoes the normalisation, for heads 2j and 2j + 1 of a tile

  __device__ __forceinline__ void load(const Job& job, Token token, int head, int w, int j) {  // head: this thread's of tile 0
#pragma unroll
    for (int n = 0; n < C::kTiles8; ++n) {
      const bool exists = head + 8 * n < job.h_q;
      const uint8_t* q = q_row(job, token, exists ? head + 8 * n : 0);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const uint8_t* at = q + w * 256 + k * 32;
        if constexpr (C::kFp8) {  // the four neighbours that a thread gets of 16 raw bytes of K
          const uint2 v = exists ? *reinterpret_cast<const uint2*>(at + 8 * j) : make_uint2(0, 0);
          latent[k][n][0] = v.x, latent[k][n][1] = v.y;
        } else {
          latent[k][n][0] = exists ? *reinterpret_cast<const uint32_t*>(at + 4 * j) : 0;
          latent[k][n][1] = exists ? *reinterpret_cast<const uint32_t*>(at + 4 * j + 16) : 0;
        }
      }
      const uint8_t* at = q + 1024 + w * 32 + 4 * j;
      rope[n][0] = exists && job.rope ? *reinterpret_cast<const uint32_t*>(at) : 0;
      rope[n][1] = exists && job.rope ? *reinterpret_cast<const uint32_t*>(at + 16) : 0;
    }
  }
  /// fp8_656: each head's slice becomes fp16, times a power of two that brings its largest value to [2^13, 2^14). Exact down to 2^-27 of that value.
  __device__ __forceinline__ void normalise(bool fp16, int j) {
#pragma unroll
    for (int n = 0; n < C::kTiles8; ++n) {
      float largest = 0.f;
#pragma unroll
      for (int k = 0; k < 8; ++k)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float2 v = unpack16(fp16, latent[k][n][i]);
          largest = fmaxf(largest, fmaxf(fabsf(v.x), fabsf(v.y)));
        }
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      const int exponent = max(-100, min(static_cast<int>(__float_as_uint(largest) >> 23) - 127, 120));
      const float up = pow2(13 - exponent), down = pow2(exponent - 13 + kE4m3Exponent);
#pragma unroll
      for (int k = 0; k < 8; ++k)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float2 v = unpack16(fp16, latent[k][n][i]);
          latent[k][n][i] = pack_fp16(v.x * up, v.y * up);
        }
      multiplier[n][0] = __shfl_sync(~0u, down, 8 * j);
      multiplier[n][1] = __shfl_sync(~0u, down, 8 * j + 4);
    }
  }
};

// ---- one warp's work on a tile ---------------------------------------------------------------------------------------------------------
template <class C>
struct Math {
  using Logits = float[C::kSteps][C::kTiles8][4];      // C fragments: tokens x heads
  using Weights = uint32_t[C::kSteps][C::kTiles8][2];  // B fragments of P
  using Values = float[C::kTiles8][C::kSteps * 4];     // the same elements as floats
  static constexpr int kWarpLogits = C::kHeadsPerGroup * C::kTokens;
  static constexpr int kShift = C::kFp8 ? 0 : C::kFp16 ? kFp16Shift : 0;  // P = 2^(x - reference), reference = maximum - kShift

  typename C::Shared& shared;
  const Job& job;
  int lane, w, g, j;                                  // w: warp of the group; g = lane / 4, j = lane % 4
  uint32_t row_offset, column_offset;                 // ldmatrix addresses of this lane: 16 tokens x 32 bytes, straight and transposed
  int store_at, load_at;                              // into a logits buffer
  float out[8][C::kTiles8][4] = {};                   // [16 columns][8 heads]: (column g, heads 2j 2j+1), (column g + 8, the same heads)
  float reference[C::kTiles8], sum[C::kTiles8] = {};  // of head g of each tile; sum over this thread's tokens
  int scale_exponent = -100;                          // fp8_656: exponent of the largest scale of this column group so far

  __device__ __forceinline__ Math(typename C::Shared& s, const Job& job_, int lane_, int warp)
      : shared(s), job(job_), lane(lane_), w(warp & 3), g(lane_ >> 2), j(lane_ & 3) {
    row_offset = (lane & 15) * C::kRowPitch + (lane >> 4) * 16;
    column_offset = ((lane & 7) + ((lane >> 4) << 3)) * C::kRowPitch + ((lane >> 3) & 1) * 16;
    const int group = warp >> 2;
    store_at = (group * 4 + w) * kWarpLogits + (((g >> 1) ^ (j & 2)) * 4 + (g & 1) * 2);
    load_at = group * 4 * kWarpLogits + logits_row(g) * 16 + (j ^ (2 * (g >> 2))) * 4;
#pragma unroll
    for (int n = 0; n < C::kTiles8; ++n) reference[n] = kFarBelow;
  }

  /// Partial logits over this warp's 144 columns.
  __device__ __forceinline__ void scores(int stage, const Query<C>& q, Logits& x) const {
    const uint8_t* rows = shared.rows[stage];
#pragma unroll
    for (int t = 0; t < C::kSteps; ++t) {
      const uint32_t at = shared_address(rows) + t * 16 * C::kRowPitch + row_offset;
      float second[C::kTiles8][4];  // two chains of MMAs
#pragma unroll
      for (int n = 0; n < C::kTiles8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) x[t][n][i] = second[n][i] = 0.f;
      if constexpr (!C::kFp8) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          uint32_t a[4];
          ldmatrix(a, at + w * 256 + k * 32);
#pragma unroll
          for (int n = 0; n < C::kTiles8; ++n) mma_latent<C>(k & 1 ? second[n] : x[t][n], a, q.latent[k][n]);
        }
        uint32_t a[4];
        ldmatrix(a, at + 1024 + w * 32);
#pragma unroll
        for (int n = 0; n < C::kTiles8; ++n) mma_latent<C>(x[t][n], a, q.rope[n]);
#pragma unroll
        for (int n = 0; n < C::kTiles8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) x[t][n][i] += second[n][i];
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          uint32_t r[4];
          ldmatrix(r, at + w * 128 + k * 32);
          const uint32_t a[4] = {e4m3_to_fp16x2<0>(r[0]), e4m3_to_fp16x2<0>(r[1]), e4m3_to_fp16x2<1>(r[0]), e4m3_to_fp16x2<1>(r[1])};
#pragma unroll
          for (int n = 0; n < C::kTiles8; ++n) mma_latent<C>(x[t][n], a, q.latent[2 * k][n]);
          const uint32_t b[4] = {e4m3_to_fp16x2<0>(r[2]), e4m3_to_fp16x2<0>(r[3]), e4m3_to_fp16x2<1>(r[2]), e4m3_to_fp16x2<1>(r[3])};
#pragma unroll
          for (int n = 0; n < C::kTiles8; ++n) mma_latent<C>(x[t][n], b, q.latent[2 * k + 1][n]);
        }
        uint32_t a[4];
        ldmatrix(a, at + Fp8Row656::kRopeOff + w * 32);
        const uint8_t* scales = rows + (t * 16 + g) * C::kRowPitch + Fp8Row656::kScaleOff + 4 * w;
        const float s0 = *reinterpret_cast<const float*>(scales), s1 = *reinterpret_cast<const float*>(scales + 8 * C::kRowPitch);
#pragma unroll
        for (int n = 0; n < C::kTiles8; ++n) {
          mma_either(job.fp16, second[n], a, q.rope[n][0], q.rope[n][1]);
          x[t][n][0] = fmaf(x[t][n][0], s0 * q.multiplier[n][0], second[n][0]);
          x[t][n][1] = fmaf(x[t][n][1], s0 * q.multiplier[n][1], second[n][1]);
          x[t][n][2] = fmaf(x[t][n][2], s1 * q.multiplier[n][0], second[n][2]);
          x[t][n][3] = fmaf(x[t][n][3], s1 * q.multiplier[n][1], second[n][3]);
        }
      }
    }
  }
  __device__ __forceinline__ void store_scores(int buffer, const Logits& x) const {
    float* base = shared.logits[buffer] + store_at;
#pragma unroll
    for (int t = 0; t < C::kSteps; ++t)
#pragma unroll
      for (int n = 0; n < C::kTiles8; ++n) {
        float* at = base + (n * C::kSteps + t) * 128;
        *reinterpret_cast<float2*>(at + logits_row(2 * j) * 16) = make_float2(x[t][n][0], x[t][n][2]);
        *reinterpret_cast<float2*>(at + logits_row(2 * j + 1) * 16) = make_float2(x[t][n][1], x[t][n][3]);
      }
  }
  /// Logits of the tile as B fragments: the sum of the four warps' parts, in log2 units, masked.
  __device__ __forceinline__ void load_scores(int stage, int buffer, Values& v) const {
    const float* base = shared.logits[buffer] + load_at;
#pragma unroll
    for (int t = 0; t < C::kSteps; ++t) {
      const float4 mask = *reinterpret_cast<const float4*>(&shared.mask[stage][t * 16 + 4 * j]);
#pragma unroll
      for (int n = 0; n < C::kTiles8; ++n) {
        const float* at = base + (n * C::kSteps + t) * 128;
        const float4 a = *reinterpret_cast<const float4*>(at), b = *reinterpret_cast<const float4*>(at + kWarpLogits);
        const float4 c = *reinterpret_cast<const float4*>(at + 2 * kWarpLogits), d = *reinterpret_cast<const float4*>(at + 3 * kWarpLogits);
        v[n][t * 4 + 0] = fmaf((a.x + b.x) + (c.x + d.x), job.scale_log2, mask.x);
        v[n][t * 4 + 2] = fmaf((a.y + b.y) + (c.y + d.y), job.scale_log2, mask.y);
        v[n][t * 4 + 1] = fmaf((a.z + b.z) + (c.z + d.z), job.scale_log2, mask.z);
        v[n][t * 4 + 3] = fmaf((a.w + b.w) + (c.w + d.w), job.scale_log2, mask.w);
      }
    }
  }
  /// fp8_656: this thread's tokens' scales of the warp's column group.
  __device__ __forceinline__ void load_scales(int stage, float (&scale)[C::kSteps * 4]) const {
    if constexpr (C::kFp8) {
#pragma unroll
      for (int i = 0; i < C::kSteps * 4; ++i) {
        const int token = (i >> 2) * 16 + 2 * j + (i & 1) + (i >> 1 & 1) * 8;
        scale[i] = *reinterpret_cast<const float*>(shared.rows[stage] + token * C::kRowPitch + Fp8Row656::kScaleOff + 4 * w);
      }
    }
  }
  /// P of the tile (times the scales of the column group) as B fragments; `out` and `sum` follow the reference where it moved.
  __device__ __forceinline__ void softmax(const Values& v, float (&scale)[C::kSteps * 4], Weights& p) {
    float scale_change = 1.f;
    if constexpr (C::kFp8) {
      float largest = 0.f;
#pragma unroll
      for (int i = 0; i < C::kSteps * 4; ++i) largest = fmaxf(largest, scale[i]);
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      const int exponent = max(scale_exponent, min(static_cast<int>(__float_as_uint(largest) >> 23) - 126, 110));  // largest < 2^exponent
      scale_change = __uint_as_float(static_cast<uint32_t>(max(scale_exponent - exponent + 127, 0)) << 23);
      scale_exponent = exponent;
      const float normal = pow2(kFp16Shift - exponent);
#pragma unroll
      for (int i = 0; i < C::kSteps * 4; ++i) scale[i] *= normal;
    }
    float change[C::kTiles8];
    bool moved = scale_change != 1.f;
#pragma unroll
    for (int n = 0; n < C::kTiles8; ++n) {
      float largest = v[n][0];
#pragma unroll
      for (int i = 1; i < C::kSteps * 4; ++i) largest = fmaxf(largest, v[n][i]);
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      const float now = largest > reference[n] + (kLazy + kShift) ? largest - kShift : reference[n];
      change[n] = exp2_approx(reference[n] - now);
      moved |= now != reference[n];
      reference[n] = now;
      sum[n] *= change[n];
      float tile_sum = 0.f;
#pragma unroll
      for (int t = 0; t < C::kSteps; ++t) {
        float e[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) e[i] = exp2_approx(v[n][t * 4 + i] - now);
        tile_sum += (e[0] + e[1]) + (e[2] + e[3]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if constexpr (C::kFp8) e[i] *= scale[t * 4 + i];
        p[t][n][0] = pack16(C::kFp16, e[0], e[1]);
        p[t][n][1] = pack16(C::kFp16, e[2], e[3]);
      }
      sum[n] += tile_sum;
    }
    if (__any_sync(~0u, moved)) {
#pragma unroll
      for (int n = 0; n < C::kTiles8; ++n) {
        const float2 f = per_output_head(change[n] * scale_change);
#pragma unroll
        for (int m = 0; m < 8; ++m) out[m][n][0] *= f.x, out[m][n][1] *= f.y, out[m][n][2] *= f.x, out[m][n][3] *= f.y;
      }
    }
  }
  /// A value held for head g of a tile -> those of this thread's output heads, 2j and 2j + 1.
  __device__ __forceinline__ float2 per_output_head(float x) const { return make_float2(__shfl_sync(~0u, x, 8 * j), __shfl_sync(~0u, x, 8 * j + 4)); }

  /// out^T += V^T P^T over this warp's 128 columns.
  __device__ __forceinline__ void accumulate(int stage, const Weights& p) {
    const uint32_t rows = shared_address(shared.rows[stage]);
#pragma unroll
    for (int t = 0; t < C::kSteps; ++t) {
      if constexpr (!C::kFp8) {
        const uint32_t at = rows + column_offset + t * 16 * C::kRowPitch + w * 256;
#pragma unroll
        for (int m = 0; m < 8; ++m) {
          uint32_t a[4];
          ldmatrix_transposed(a, at + m * 32);
#pragma unroll
          for (int n = 0; n < C::kTiles8; ++n) mma_latent<C>(out[m][n], a, p[t][n]);
        }
      } else {  // a transposed register holds two columns of two tokens: bytes 0 and 2 are one column, 1 and 3 the next
        const uint32_t at = rows + row_offset + t * 16 * C::kRowPitch + w * 128;
        auto even = [](uint32_t r) { return e4m3_to_fp16x2<0>(__byte_perm(r, 0, 0x3120)); };
        auto odd = [](uint32_t r) { return e4m3_to_fp16x2<1>(__byte_perm(r, 0, 0x3120)); };
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          uint32_t r[4];
          ldmatrix_transposed(r, at + m * 32);
          const uint32_t a[4] = {even(r[0]), odd(r[0]), even(r[1]), odd(r[1])};
#pragma unroll
          for (int n = 0; n < C::kTiles8; ++n) mma_latent<C>(out[2 * m][n], a, p[t][n]);
          const uint32_t b[4] = {even(r[2]), odd(r[2]), even(r[3]), odd(r[3])};
#pragma unroll
          for (int n = 0; n < C::kTiles8; ++n) mma_latent<C>(out[2 * m + 1][n], b, p[t][n]);
        }
      }
    }
  }
};

// ---- MergeBy::cluster: one or two splits, each CTA its share of the units ----------------------------------------------------------------
template <class C>
__device__ __forceinline__ void meet(const MmaParams& p, typename C::Meeting& mine, Token token, int rank, int first_pair) {
  const uint32_t here = shared_address(&mine), state_at = shared_address(mine.state) - here;
  const uint32_t first = peer_address(here, 0), second = peer_address(here, p.num_splits - 1);
  cluster_barrier();
#pragma unroll 2
  for (int i = rank * C::kThreads + static_cast<int>(threadIdx.x); i < C::kHeads * 128; i += p.num_splits * C::kThreads) {
    const int pair = i >> 8, unit = i & 255, from = (pair * 256 + (unit ^ 2 * (pair & 3))) * 16;
    const float4 s0 = load_peer(first + state_at + pair * 16), v0 = load_peer(first + from);  // s: {reference, sum} of both heads
    float4 s1 = make_float4(kFarBelow, 0.f, kFarBelow, 0.f), v1 = make_float4(0.f, 0.f, 0.f, 0.f);
    if (p.num_splits == 2) s1 = load_peer(second + state_at + pair * 16), v1 = load_peer(second + from);
    PairState state{{fmaxf(s0.x, s1.x), fmaxf(s0.z, s1.z)}};
    const float a0 = exp2_approx(s0.x - state.reference[0]), a1 = exp2_approx(s1.x - state.reference[0]);
    const float b0 = exp2_approx(s0.z - state.reference[1]), b1 = exp2_approx(s1.z - state.reference[1]);
    state.sum[0] = fmaf(a0, s0.y, a1 * s1.y), state.sum[1] = fmaf(b0, s0.w, b1 * s1.w);
    const float4 sum = make_float4(fmaf(a0, v0.x, a1 * v1.x), fmaf(a0, v0.y, a1 * v1.y), fmaf(b0, v0.z, b1 * v1.z), fmaf(b0, v0.w, b1 * v1.w));
    write_unit<C::kFp8 ? UnitOrder::mma8 : UnitOrder::mma16>(p.job, token, first_pair + pair, unit, sum, state, true);
  }
  cluster_barrier();  // nobody leaves while its shared memory is read
}

// ---- the kernel ------------------------------------------------------------------------------------------------------------------------
template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm) mma_kernel(const __grid_constant__ MmaParams p) {
  extern __shared__ __align__(128) uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<typename C::Shared*>(dynamic_shared);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, group = warp >> 2;
  const int split = blockIdx.x % p.num_splits, unit = blockIdx.x / p.num_splits, t = unit / p.head_blocks, head0 = unit % p.head_blocks * C::kHeads;
  const Token token = token_of(p.job, t);
  if (p.merge == MergeBy::kernel) allow_dependent_launch();  // the merge may take its place; it waits for this grid's end

  const int all_tiles = (entries_of(p.job.keys, token) + C::kTokens - 1) / C::kTokens;
  const int first = static_cast<int>(int64_t{split} * all_tiles / p.num_splits),
            last = static_cast<int>(int64_t{split + 1} * all_tiles / p.num_splits);
  Gather<C> ring{p.job.keys, shared, list_of(p.job.keys, token)};
  ring.begin = first * C::kTokens;
  ring.end = min(last * C::kTokens, entries_of(p.job.keys, token));
  ring.tiles = last - first;
  ring.lane = lane;
  ring.warp = warp;
  ring.row = warp * C::kRowsPerWarp + lane % C::kRowsPerWarp;
  ring.start();
  if (tid == 0) {
#pragma unroll
    for (int s = 0; s < C::kStages; ++s) mbar_init(shared_address(&shared.full[s]), kHasBulk ? C::kWarps : C::kThreads);
    mbar_init_fence();
  }
  if (!p.job.rope)  // rows of 512 elements: the RoPE columns stay 0
    for (int r = tid; r < C::kStages * C::kTokens * 8; r += C::kThreads)
      *reinterpret_cast<uint4*>(shared.rows[0] + (r >> 3) * C::kRowPitch + 1024 + (r & 7) * 16) = make_uint4(0, 0, 0, 0);
  __syncthreads();

  // The first tile at once; Q next, or it would queue behind the whole ring; then the rest of the ring.
  ring.issue(0);
  Math<C> math(shared, p.job, lane, warp);
  Query<C> query;
  const int head = head0 + group * C::kHeadsPerGroup + math.g;
  query.load(p.job, token, head, math.w, math.j);
#pragma unroll 1
  for (int s = 1; s < C::kStages; ++s) ring.issue(s);
  if constexpr (C::kFp8) query.normalise(p.job.fp16, math.j);

  int stage = 0;
  uint32_t parity = 0;
  typename Math<C>::Logits x;
  typename Math<C>::Values v;
  typename Math<C>::Weights weights;
  float scale[C::kSteps * 4];
  auto full = [&](int s) { return shared_address(&shared.full[s]); };
  if constexpr (!C::kPipelined) {
    for (int tile = 0; tile < ring.tiles; ++tile) {
      mbar_wait(full(stage), parity);
      math.scores(stage, query, x);
      math.store_scores(tile & 1, x);
      __syncthreads();
      if (tile) ring.issue(tile - 1 + C::kStages);  // everybody is past tile - 1
      math.load_scales(stage, scale);
      math.load_scores(stage, tile & 1, v);
      math.softmax(v, scale, weights);
      math.accumulate(stage, weights);
      if (++stage == C::kStages) stage = 0, parity ^= 1;
    }
  } else if (ring.tiles > 0) {
    mbar_wait(full(0), 0);
    math.scores(0, query, x);
    math.store_scores(0, x);
    __syncthreads();
    for (int tile = 0; tile < ring.tiles - 1; ++tile) {
      const int next = stage + 1 == C::kStages ? 0 : stage + 1;
      const uint32_t next_parity = next ? parity : parity ^ 1;
      if (tile) ring.issue(tile - 1 + C::kStages);
      mbar_wait(full(next), next_parity);
      math.load_scales(stage, scale);
      math.load_scores(stage, tile & 1, v);
      math.scores(next, query, x);
      math.softmax(v, scale, weights);
      math.store_scores((tile + 1) & 1, x);
      math.accumulate(stage, weights);
      __syncthreads();
      stage = next, parity = next_parity;
    }
    math.load_scales(stage, scale);
    math.load_scores(stage, (ring.tiles - 1) & 1, v);
    math.softmax(v, scale, weights);
    math.accumulate(stage, weights);
  }

  // ---- results
  const float unscale = C::kFp8 ? pow2(math.scale_exponent - kFp16Shift + kE4m3Exponent) : 1.f;
  const int pair0 = group * C::kHeadsPerGroup / 2 + math.j, unit0 = math.w * 64 + math.g;  // + 4 a tile of heads, + 8 a tile of columns
  auto& meeting = *reinterpret_cast<typename C::Meeting*>(&shared);
  const bool meets = p.merge == MergeBy::cluster;
  if (meets) __syncthreads();  // the last rows and logits have been read
#pragma unroll
  for (int n = 0; n < C::kTiles8; ++n) {
    float sum = math.sum[n];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    float2* state = meets ? meeting.state + group * C::kHeadsPerGroup + math.g + 8 * n
                          : p.partials.state + (int64_t{t} * 2 * p.partials.pairs + head + 8 * n) * p.num_splits + split;
    if (math.w == 0 && math.j == 0) *state = make_float2(math.reference[n], sum);
    const int pair = pair0 + 4 * n, swizzle = meets ? 2 * math.j : 0;
    float4* sums =
        meets ? meeting.sums + pair * 256 : p.partials.sums + ((int64_t{t} * p.num_splits + split) * p.partials.pairs + head0 / 2 + pair) * 256;
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      const float(&o)[4] = math.out[m][n];
      sums[(unit0 + m * 8) ^ swizzle] = make_float4(o[0] * unscale, o[2] * unscale, o[1] * unscale, o[3] * unscale);
    }
  }
  if (meets) return meet<C>(p, meeting, token, split, head0 / 2);
  if (p.merge == MergeBy::kernel) return;
  cooperative_groups::this_grid().sync();  // also: nobody reads the ring any more
  auto& scratch = *reinterpret_cast<MergeScratch*>(&shared);
  static_assert(sizeof(MergeScratch) <= offsetof(typename C::Shared, full));
  const int share = C::kHeads * 128 / p.num_splits, units = min(share, C::kThreads);  // num_splits: a power of two
  for (int u = split * share; u < (split + 1) * share; u += units) {
    merge_share<C::kFp8 ? UnitOrder::mma8 : UnitOrder::mma16>(p.job, p.partials, t, head0 / 2 + (u >> 8), u & 255, units, p.num_splits, scratch,
                                                              true);
    __syncthreads();
  }
}

template <class C>
MmaInstance mma_instance(const char* name) {
  return {name,        reinterpret_cast<const void*>(mma_kernel<C>), C::kFormat,     C::kHeads,
          C::kThreads, static_cast<int>(sizeof(typename C::Shared)), C::kBlocksPerSm};
}

}  // namespace smla::cuda
