// SPDX-License-Identifier: Apache-2.0
// Split MLA decode by mma.sync, sm_80 to sm_120. One CTA = (token, block of heads, slice of the token's list), 4 warps for each group of heads.
//
// Warp w of a group owns latent columns [128 w, 128 w + 128) and RoPE columns [16 w, 16 w + 16), in Q K and in P V:
//   Q K   operands swapped: tokens on M, heads on N = 8, so that 8 heads waste nothing. A warp's slice of Q stays in registers.
//         For fp8_656 a slice is one scale group: the fp32 scale multiplies the partial logit.
//   meet  the partial logits of the four warps are added through shared memory; every warp does the softmax for itself, or (16 heads) for a quarter.
//   P V   latent columns on M, by ldmatrix.trans of the SAME rows (K is loaded once); P is already the B fragment.
//         For fp8_656 the scale is folded into P, relative to a running power of two, so that any positive fp32 scale is as good as 1.
// Rows arrive in a ring of tiles, copied by warps that do nothing else and meet no barrier of the others: by 16-byte cp.async of all lanes, or in
// bulk (kBulk). full[s]: the rows of stage s have landed. empty[s]: the others have left it. Invalid entry: the row is zero-filled in shared memory
// AND its logit gets -inf after scaling, because 0 * NaN = NaN. Where the splits of a token merge: MergeBy in config.h. The softmax reference is
// lazy: it moves only when exceeded by 2^kLazy. Any reference is exact; P may then exceed 1 (contract: p_max = any). Bound: README, "the two
// numbers".
#pragma once
#include "kernels/common/combine.cuh"
#include "kernels/sparse_mma/config.h"
#include "kernels/sparse_mma/layout.h"

namespace smla::cuda {

struct MmaParams {
  Job job;
  FastDiv by_splits, by_head_blocks, by_queries;  // with job.keys, its neighbour, what the first row waits for
  int32_t num_splits, head_blocks;
  MergeBy merge;
  int32_t stages;
  Partials partials;
  uint64_t row_policy = kEvictFirst;  // L2's
};

inline constexpr float kFarBelow = -1e30f;  // the reference before any key: finite, so that differences are never NaN
inline constexpr float kLazy = 3.f;
inline constexpr int kFp16Shift = 12;  // fp16 P is kept at 2^12 times its value (2^15 at most): small weights stay normal numbers

template <class C>
__device__ __forceinline__ void mma_latent(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma<C::kFp16>(c, a, b[0], b[1]);
}

/// A barrier of the warps that compute; those that fetch may have ended.
template <class C>
__device__ __forceinline__ void meet_others() {
  asm volatile("bar.sync 1, %0;" ::"n"(C::kThreads) : "memory");
}

/// Rows come by bulk copies (sm_90 and later).
template <class C>
inline constexpr bool kBulk = kHasBulk && !C::kLines;

// ---- the ring: who fetches which row, and when -------------------------------------------------------------------------------------------
template <class C>
struct Gather {
  static constexpr int kRows = C::kRowsPerWarp, kSpan = C::kTilesPerRegister;
  const Keys& keys;
  typename C::Shared& shared;
  const int32_t* list;
  uint64_t policy;                         // L2's, for rows
  int begin, end, tiles, lane, warp, row;  // entries [begin, end); row: this lane's row of a tile
  uint32_t current;                        // number of this lane's row of tile (lane / kRows) of the present span of kSpan tiles
  int first, next;                         // list elements of the first and the next span, in flight
  int place;                               // of the tile in its span

  __device__ __forceinline__ int entry(int span) const { return begin + (span * kSpan + lane / kRows) * C::kTokens + row; }
  __device__ __forceinline__ int load(int span) const { return entry(span) < end ? load_entry(keys, list, entry(span)) : -1; }
  __device__ __forceinline__ void request() { first = load(0), next = load(1); }
  __device__ __forceinline__ void receive() { current = row_number(keys, first, entry(0)); }

  /// The rows of a tile; tiles in order.
  __device__ __forceinline__ void aim(int tile) {
    place = tile % kSpan;
    if (place == 0 && tile) {
      const int span = tile / kSpan;
      current = row_number(keys, next, entry(span));
      next = load(span + 1);
    }
  }
  /// Waits for the stage that the tile goes to, until every warp has left it, and starts the copies.
  __device__ __forceinline__ void issue(int tile, int stage, uint32_t parity) {
    if constexpr (kBulk<C>) {
      mbar_wait(shared_address(&shared.empty[stage]), parity);
      aim(tile);
      put_mask(stage);
      copy_in_bulk(stage);
    } else {
      aim(tile);
      copy_by_lanes(stage, parity);
    }
  }
  __device__ __forceinline__ void put_mask(int stage) {
    if (lane / kRows == place) shared.mask[stage][(row & ~15) + fragment_place(row & 15)] = current != kNoRow ? 0.f : -__int_as_float(0x7f800000);
  }
  __device__ __forceinline__ uint32_t place_of_rows(int stage) const { return shared_address(shared.rows[stage]) + warp * kRows * C::kRowPitch; }
  /// Eight lanes copy a line of 128 bytes. Nothing is left to do between the wait and the copies.
  __device__ __forceinline__ void copy_by_lanes(int stage, uint32_t parity) {
    const int at = (lane & 7) * 16;
    uint32_t number[kRows / 4];
    const uint8_t* src[kRows / 4];
#pragma unroll
    for (int r = 0; r < kRows / 4; ++r) {
      number[r] = __shfl_sync(~0u, current, place * kRows + 4 * r + (lane >> 3));
      src[r] = row_at(keys, number[r] != kNoRow ? number[r] : 0) + at;
      asm volatile("" : "+l"(src[r]));  // now; and one address, not one a line
    }
    mbar_wait(shared_address(&shared.empty[stage]), parity);
    put_mask(stage);
    const uint32_t bar = shared_address(&shared.full[stage]);
#pragma unroll
    for (int r = 0; r < kRows / 4; ++r) {
      const int mine = 4 * r + (lane >> 3);
      const uint32_t to = place_of_rows(stage) + mine * C::kRowPitch + C::place_in_line(mine, at);
#pragma unroll
      for (int line = 0; line < C::kRowBytes; line += 128)
        copy16_under(policy, to + line, src[r] + line, number[r] != kNoRow ? 16 : 0, line + 128 <= C::kLeastRowBytes || line + at < keys.row_bytes);
    }
    copy16_arrive(bar);
    __syncwarp();  // the arrival of one lane releases the mask to the others
    if (lane == 0) mbar_arrive(bar);
  }
  /// One elected lane copies rows as they are.
  __device__ __forceinline__ void copy_in_bulk(int stage) {
    const uint32_t bar = shared_address(&shared.full[stage]), dst = place_of_rows(stage);
    const unsigned invalid = __ballot_sync(~0u, lane / kRows == place && current == kNoRow) >> (place * kRows);
    uint32_t number[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) number[r] = __shfl_sync(~0u, current, place * kRows + r);
    if (invalid) zero_rows(stage, invalid);
    __syncwarp();  // the arrival of the elected lane releases mask and zeroes to the others
    const bool elected = elect_one();
    if (elected) mbar_arrive_expect_tx(bar, (kRows - __popc(invalid)) * keys.row_bytes);
    if (invalid == 0) {  // without branches, so that the moves to uniform registers, which a copy wants, overlap
      if (elected) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) bulk_copy_once(dst + r * C::kRowPitch, row_at(keys, number[r]), keys.row_bytes, bar);
      }
    } else {
#pragma unroll 1
      for (int r = 0; r < kRows; ++r) {
        const uint32_t n = __shfl_sync(~0u, current, place * kRows + r);
        if (elected && n != kNoRow) bulk_copy_once(dst + r * C::kRowPitch, row_at(keys, n), keys.row_bytes, bar);
      }
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
  }
};

// ---- Q: B fragments of the warp's slice ------------------------------------------------------------------------------------------------
template <class C>
struct Query {
  uint32_t latent[8][C::kTiles8][2], rope[C::kTiles8][2];

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
  /// multiplier: of the warp, for each head; its inverse.
  __device__ __forceinline__ void normalise(bool fp16, int g, int j, float* multiplier) {
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
      if (j == 0) multiplier[8 * n + g] = down;
    }
    __syncwarp();
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
  float* multiplier;                                  // fp8_656: of this warp
  float out[8][C::kTiles8][4] = {};                   // [16 columns][8 heads]: (column g, heads 2j 2j+1), (column g + 8, the same heads)
  float reference[C::kTiles8], sum[C::kTiles8] = {};  // of head g of each tile; sum over this thread's tokens
  int scale_exponent = -100;                          // fp8_656: exponent of the largest scale of this column group so far
  int own_head, own_tokens, own_logits, own_weights, fragments, changes;  // kSharedSoftmax: indices of this lane

  __device__ __forceinline__ Math(typename C::Shared& s, const Job& job_, int lane_, int group, int warp)
      : shared(s), job(job_), lane(lane_), w(warp & 3), g(lane_ >> 2), j(lane_ & 3) {
    row_offset = (lane & 15) * C::kRowPitch + C::place_in_line(lane, (lane >> 4) * 16);
    column_offset = ((lane & 7) + ((lane >> 4) << 3)) * C::kRowPitch + C::place_in_line(lane, ((lane >> 3) & 1) * 16);
    store_at = (group * 4 + w) * kWarpLogits + logits_store(g, j);
    multiplier = shared.multiplier + (C::kFp8 ? (group * 4 + w) * C::kHeadsPerGroup : 0);
    load_at = group * 4 * kWarpLogits + logits_at(g, 4 * j);
#pragma unroll
    for (int n = 0; n < C::kTiles8; ++n) reference[n] = kFarBelow;
    if constexpr (C::kSharedSoftmax) share_softmax(group);
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
          ldmatrix(a, C::further(at + w * 256, k));
#pragma unroll
          for (int n = 0; n < C::kTiles8; ++n) mma_latent<C>(k & 1 ? second[n] : x[t][n], a, q.latent[k][n]);
        }
        uint32_t a[4];
        ldmatrix(a, C::further(at + 1024, w));
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
          ldmatrix(r, C::further(at + w * 128, k));
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
          const float2 m = *reinterpret_cast<const float2*>(multiplier + 8 * n + 2 * j);
          x[t][n][0] = fmaf(x[t][n][0], s0 * m.x, second[n][0]);
          x[t][n][1] = fmaf(x[t][n][1], s0 * m.y, second[n][1]);
          x[t][n][2] = fmaf(x[t][n][2], s1 * m.x, second[n][2]);
          x[t][n][3] = fmaf(x[t][n][3], s1 * m.y, second[n][3]);
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
    const float scale_change = C::kFp8 ? follow_scales(scale) : 1.f;
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
      float2 f[C::kTiles8];
#pragma unroll
      for (int n = 0; n < C::kTiles8; ++n) f[n] = per_output_head(change[n] * scale_change);
      multiply(f);
    }
  }
  /// A value held for head g of a tile -> those of this thread's output heads, 2j and 2j + 1.
  __device__ __forceinline__ float2 per_output_head(float x) const { return make_float2(__shfl_sync(~0u, x, 8 * j), __shfl_sync(~0u, x, 8 * j + 4)); }

  // ---- kSharedSoftmax: warp w does it for heads [w kOwnHeads, (w + 1) kOwnHeads) of the group, a lane for one head and kPer neighbours of the
  // logits' order; P and what the sums must be multiplied by go through shared memory
  static constexpr int kPer = C::kTiles8 * C::kSteps, kOwnHeads = 2 * C::kTiles8, kLanes16 = 16 / kPer;  // kLanes16: lanes over 16 tokens

  __device__ __forceinline__ void share_softmax(int group) {
    const SoftmaxShare own = softmax_share(w, lane, C::kTiles8, kPer);
    const int h = own.head & 7, block = ((own.head >> 3) * C::kSteps + own.block) * 128;
    own_head = own.head;
    own_tokens = own.block * 16 + own.place;
    own_logits = group * 4 * kWarpLogits + block + logits_at(h, own.place);
    own_weights = group * kWarpLogits + block + h * 16 + own.place;
    fragments = group * kWarpLogits + g * 16 + 4 * j;
    changes = group * C::kHeadsPerGroup;
    asm volatile("" : "+r"(own_tokens), "+r"(own_logits), "+r"(own_weights), "+r"(fragments));  // kept, not computed again in every tile
  }
  static __device__ __forceinline__ void load_own(float (&v)[kPer], const float* at) {
    if constexpr (kPer == 4) {
      const float4 x = *reinterpret_cast<const float4*>(at);
      v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
    } else {
      static_assert(kPer == 2);
      const float2 x = *reinterpret_cast<const float2*>(at);
      v[0] = x.x, v[1] = x.y;
    }
  }
  /// `x` of all lanes of this lane's head, combined by `f`.
  template <class F>
  static __device__ __forceinline__ float over_own_head(float x, F f) {
#pragma unroll
    for (int o = 1; o < 32; o <<= 1)
      if (o < kLanes16 || o >= kLanes16 * kOwnHeads) x = f(x, __shfl_xor_sync(~0u, x, o));
    return x;
  }
  /// A barrier must follow. The state of the own head is in reference[0] and sum[0].
  __device__ __forceinline__ void softmax_own(int stage) {
    float a[kPer], b[kPer], c[kPer], d[kPer], v[kPer];
    const float* at = shared.logits[0] + own_logits;
    load_own(a, at), load_own(b, at + kWarpLogits), load_own(c, at + 2 * kWarpLogits), load_own(d, at + 3 * kWarpLogits);
    load_own(v, shared.mask[stage] + own_tokens);
#pragma unroll
    for (int i = 0; i < kPer; ++i) v[i] = fmaf((a[i] + b[i]) + (c[i] + d[i]), job.scale_log2, v[i]);
    float largest = v[0];
#pragma unroll
    for (int i = 1; i < kPer; ++i) largest = fmaxf(largest, v[i]);
    largest = over_own_head(largest, [](float x, float y) { return fmaxf(x, y); });
    const float now = largest > reference[0] + (kLazy + kShift) ? largest - kShift : reference[0], change = exp2_approx(reference[0] - now);
    reference[0] = now;
    if (own_tokens == 0) shared.change[changes + own_head] = change;
    float tile_sum = 0.f;
#pragma unroll
    for (int i = 0; i < kPer; ++i) v[i] = exp2_approx(v[i] - now), tile_sum += v[i];
    sum[0] = fmaf(sum[0], change, tile_sum);
    if constexpr (C::kFp8) {
      float* to = reinterpret_cast<float*>(shared.weights) + own_weights;
      if constexpr (kPer == 4) *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
      else *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
    } else {  // tokens 2j, 2j+8, 2j+1, 2j+9 -> registers {2j, 2j+1}, {2j+8, 2j+9}
      uint32_t* to = reinterpret_cast<uint32_t*>(shared.weights) + own_weights / 2;
      if constexpr (kPer == 4) {
        *reinterpret_cast<uint2*>(to) = make_uint2(pack16(C::kFp16, v[0], v[2]), pack16(C::kFp16, v[1], v[3]));
      } else {
        const bool second = lane & 1;
        const float other = __shfl_xor_sync(~0u, second ? v[0] : v[1], 1);
        *to = second ? pack16(C::kFp16, other, v[1]) : pack16(C::kFp16, v[0], other);
      }
    }
  }
  /// P as B fragments, times the scales of the column group; `out` follows the references that moved.
  __device__ __forceinline__ void load_weights(int stage, Weights& p) {
    float scale[C::kSteps * 4], scale_change = 1.f;
    if constexpr (C::kFp8) {
      load_scales(stage, scale);
      scale_change = follow_scales(scale);
    }
    float2 change[C::kTiles8];
    bool moved = scale_change != 1.f;
#pragma unroll
    for (int n = 0; n < C::kTiles8; ++n) {
      change[n] = *reinterpret_cast<const float2*>(shared.change + changes + 8 * n + 2 * j);
      moved |= change[n].x != 1.f || change[n].y != 1.f;
      change[n].x *= scale_change, change[n].y *= scale_change;
    }
#pragma unroll
    for (int t = 0; t < C::kSteps; ++t)
#pragma unroll
      for (int n = 0; n < C::kTiles8; ++n) {
        const int at = fragments + (n * C::kSteps + t) * 128;
        if constexpr (C::kFp8) {
          const float4 e = *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(shared.weights) + at);
          p[t][n][0] = pack_fp16(e.x * scale[4 * t], e.z * scale[4 * t + 1]);
          p[t][n][1] = pack_fp16(e.y * scale[4 * t + 2], e.w * scale[4 * t + 3]);
        } else {
          const uint2 e = *reinterpret_cast<const uint2*>(reinterpret_cast<const uint16_t*>(shared.weights) + at);
          p[t][n][0] = e.x, p[t][n][1] = e.y;
        }
      }
    if (__any_sync(~0u, moved)) multiply(change);
  }
  __device__ __forceinline__ void multiply(const float2 (&f)[C::kTiles8]) {
#pragma unroll
    for (int n = 0; n < C::kTiles8; ++n)
#pragma unroll
      for (int m = 0; m < 8; ++m) out[m][n][0] *= f[n].x, out[m][n][1] *= f[n].y, out[m][n][2] *= f[n].x, out[m][n][3] *= f[n].y;
  }
  /// Scales relative to the running power of two. Returns what `out` must be multiplied by.
  __device__ __forceinline__ float follow_scales(float (&scale)[C::kSteps * 4]) {
    float largest = 0.f;
#pragma unroll
    for (int i = 0; i < C::kSteps * 4; ++i) largest = fmaxf(largest, scale[i]);
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    const int exponent = max(scale_exponent, min(static_cast<int>(__float_as_uint(largest) >> 23) - 126, 110));  // largest < 2^exponent
    const float change = __uint_as_float(static_cast<uint32_t>(max(scale_exponent - exponent + 127, 0)) << 23);
    scale_exponent = exponent;
    const float normal = pow2(kFp16Shift - exponent);
#pragma unroll
    for (int i = 0; i < C::kSteps * 4; ++i) scale[i] *= normal;
    return change;
  }

  /// This warp has read all that it needs of the stage.
  __device__ __forceinline__ void leave(int stage) const {
    __syncwarp();
    if (lane == 0) mbar_arrive(shared_address(&shared.empty[stage]));
  }

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
          ldmatrix_transposed(a, C::further(at, m));
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
          ldmatrix_transposed(r, C::further(at, m));
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

/// Read anew at each call: nothing that depends on it is kept over the loop, where registers are short.
__device__ __forceinline__ int thread_anew() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// ---- MergeBy::cluster: one or two splits, each CTA its share of the units; latency decides, so four units a thread at once. Little code: it runs
// once, and its instructions come from far away
template <class C, int kRanks>
__device__ __forceinline__ void meet(const MmaParams& p, typename C::Meeting& mine, Token token, int rank, int head0) {
  constexpr UnitOrder kOrder = C::kFp8 ? UnitOrder::mma8 : UnitOrder::mma16;
  constexpr int kInFlight = 4, kThreads = kRanks * C::kThreads, kPairStep = (kThreads + 255) / 256;
  static_assert(C::kHeads / 2 % (kInFlight * kPairStep) == 0);
  const uint32_t here = shared_address(&mine);
  uint32_t peer[kRanks];
#pragma unroll
  for (int k = 0; k < kRanks; ++k) peer[k] = peer_address(here, k);
  if constexpr (kRanks == 1) meet_others<C>();
  else cluster_barrier();
  const int thread = thread_anew(), head = head0 + thread;
  if (thread < C::kHeads && head < p.job.h_q) {  // what the units of each split are to be multiplied by
    float2 state[kRanks];                        // {reference, sum}
    float reference = kFarBelow, sum = 0.f;
#pragma unroll
    for (int k = 0; k < kRanks; ++k) state[k] = load_peer2(peer[k] + static_cast<uint32_t>(offsetof(typename C::Meeting, state)) + thread * 8);
#pragma unroll
    for (int k = 0; k < kRanks; ++k) reference = fmaxf(reference, state[k].x);
#pragma unroll
    for (int k = 0; k < kRanks; ++k) sum = fmaf(exp2_approx(state[k].x - reference), state[k].y, sum);
    const float factor = output_factor(p.job, head, reference, sum);
#pragma unroll
    for (int k = 0; k < kRanks; ++k) mine.factor[k][thread] = exp2_approx(state[k].x - reference) * factor;
    if (rank == 0) *lse_of(p.job, token, head) = natural_lse(reference, sum);
  }
  meet_others<C>();
  const int number = rank * C::kThreads + thread;
#pragma unroll 1
  for (int unit = number & 255; unit < 256; unit += kThreads)
#pragma unroll 1
    for (int first = number >> 8; first < C::kHeads / 2; first += kInFlight * kPairStep) {
      float4 v[kInFlight][kRanks];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
#pragma unroll
        for (int k = 0; k < kRanks; ++k) {
          const int pair = first + i * kPairStep;
          v[i][k] = load_peer(peer[k] + (pair * 256 + (unit ^ 2 * (pair & 3))) * 16);
        }
      uint8_t* to = out_row(p.job, token, head0 + 2 * first) + 2 * written_column<kOrder>(unit);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int h = 2 * (first + i * kPairStep);
        float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int k = 0; k < kRanks; ++k) {
          const float2 f = *reinterpret_cast<const float2*>(&mine.factor[k][h]);
          sum.x = fmaf(f.x, v[i][k].x, sum.x), sum.y = fmaf(f.x, v[i][k].y, sum.y);
          sum.z = fmaf(f.y, v[i][k].z, sum.z), sum.w = fmaf(f.y, v[i][k].w, sum.w);
        }
        const uint32_t a = written_word<kOrder>(p.job.fp16, unit, sum.x, sum.y), b = written_word<kOrder>(p.job.fp16, unit, sum.z, sum.w);
        if (head0 + h < p.job.h_q) *reinterpret_cast<uint32_t*>(to) = a;
        if (head0 + h + 1 < p.job.h_q) *reinterpret_cast<uint32_t*>(to + p.job.out_stride_bytes[2]) = b;
        to += 2 * kPairStep * p.job.out_stride_bytes[2];
      }
    }
  if constexpr (kRanks > 1) cluster_barrier_relaxed();  // nobody leaves while its shared memory is read
}

/// Asks for the lines of the kernel's parameters, each of four warps for every fourth: one after the other, as they are used, each would be waited
/// for.
__device__ __forceinline__ void touch_lines(const MmaParams& p, int warp) {
  constexpr int kLine = 64, kLines = (sizeof(MmaParams) + kLine - 1) / kLine;  // bytes
#pragma unroll
  for (int line = 0; line < kLines; line += 4)
    if (line + (warp & 3) < kLines) {
      const uint32_t word = reinterpret_cast<const uint32_t*>(&p)[(line + (warp & 3)) * (kLine / 4)];
      asm volatile("{\n.reg .pred same;\nsetp.eq.u32 same, %0, 0x8badf00d;\n@same pmevent 1;\n}" ::"r"(word));  // a use without effect
    }
}

/// What a CTA works on.
struct Place {
  int t, head0, split;
  Token token;
};
/// Reads the block's number anew, too.
template <class C>
__device__ __forceinline__ Place place_of_block(const MmaParams& p) {
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  const int unit = p.by_splits.divide(block), t = p.by_head_blocks.divide(unit), request = p.by_queries.divide(t);
  return {t, (unit - t * p.head_blocks) * C::kHeads, block - unit * p.num_splits, {request, t - request * static_cast<int>(p.by_queries.divisor)}};
}

// ---- the kernel ------------------------------------------------------------------------------------------------------------------------
template <class C>
__global__ void __launch_bounds__(C::kAllThreads, C::kBlocksPerSm) mma_kernel(const __grid_constant__ MmaParams p) {
  extern __shared__ __align__(128) uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<typename C::Shared*>(dynamic_shared);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, group = C::kGroups == 1 ? 0 : warp >> 2;
  if (tid < C::kThreads) touch_lines(p, warp);  // by warps that have nothing to do yet
  const Place at = place_of_block<C>(p);
  if (p.merge == MergeBy::kernel) allow_dependent_launch();  // the merge may take its place; it waits for this grid's end

  // Everything up to the request for list elements is on the critical path, and so is what follows their arrival.
  const int entries = entries_of(p.job.keys, at.token), all_tiles = (entries + C::kTokens - 1) / C::kTokens;
  const int least = p.by_splits.divide(all_tiles), larger = all_tiles - least * p.num_splits;  // the first `larger` splits have a tile more
  Gather<C> ring{p.job.keys, shared, list_of(p.job.keys, at.token), p.row_policy};
  ring.tiles = least + (at.split < larger);
  ring.begin = (at.split * least + min(at.split, larger)) * C::kTokens;
  ring.end = min(ring.begin + ring.tiles * C::kTokens, entries);
  ring.lane = lane;
  const int fetcher = warp - C::kWarps;
  ring.warp = fetcher;
  ring.row = fetcher * C::kRowsPerWarp + lane % C::kRowsPerWarp;
  if (fetcher >= 0) ring.request();
  if (tid == 0) {
#pragma unroll
    for (int s = 0; s < C::kStages; ++s) {
      mbar_init(shared_address(&shared.full[s]), (kBulk<C> ? 1 : 33) * C::kFetchers);  // by lanes: 32 for the copies, 1 for the mask
      mbar_init(shared_address(&shared.empty[s]), C::kWarps);
    }
    mbar_init_fence();
  }
  if (!p.job.rope)  // rows of 512 elements: the RoPE columns stay 0
    for (int r = tid; r < C::kStages * C::kTokens * 8; r += blockDim.x)
      *reinterpret_cast<uint4*>(shared.rows[0] + (r >> 3) * C::kRowPitch + 1024 + (r & 7) * 16) = make_uint4(0, 0, 0, 0);
  __syncthreads();

  if (fetcher >= 0) {
    ring.receive();
#pragma unroll 1
    for (int tile = 0, stage = 0, parity = 1; tile < ring.tiles; ++tile) {  // parity 1 of a new barrier: the phase before its first
      ring.issue(tile, stage, parity);
      if (++stage == p.stages) stage = 0, parity ^= 1;
    }
    if (!kBulk<C>) copy16_wait();  // bulk copies outlive the warp that asked for them
    return;
  }
  Math<C> math(shared, p.job, lane, group, warp);
  Query<C> query;
  const int head = at.head0 + group * C::kHeadsPerGroup + math.g;
  query.load(p.job, at.token, head, math.w, math.j);

  auto& meeting = *reinterpret_cast<typename C::Meeting*>(&shared);
  const bool meets = p.merge == MergeBy::cluster;
  struct Target {  // where this thread's results go, in shared memory or workspace
    float4* sums;  // + 1024 a tile of heads, + 8 a tile of columns
    float2* state;
  };
  auto target_of = [&] {
    const auto [t, head0, split, token] = place_of_block<C>(p);
    const int thread = thread_anew(), w = thread >> 5 & 3, g = thread >> 2 & 7, j = thread & 3;
    const int first_head = C::kGroups == 1 ? 0 : (thread >> 7) * C::kHeadsPerGroup, unit = w * 64 + g;
    const int h = first_head + (C::kSharedSoftmax ? softmax_share(w, thread & 31, C::kTiles8, Math<C>::kPer).head : g);
    if (meets) return Target{meeting.sums + (first_head / 2 + j) * 256 + (unit ^ 2 * j), meeting.state + h};
    return Target{p.partials.sums + ((int64_t{t} * p.num_splits + split) * p.partials.pairs + (head0 + first_head) / 2 + j) * 256 + unit,
                  p.partials.state + (int64_t{t} * 2 * p.partials.pairs + head0 + h) * p.num_splits + split};
  };
  constexpr bool kEarly = C::kTiles8 == 1;  // registers to keep it in, while rows are on their way
  Target target{};
  if constexpr (kEarly) {
    target = target_of();
    asm volatile("" : "+l"(target.sums), "+l"(target.state));  // kept, not computed again
  }

  int stage = 0;
  uint32_t parity = 0;
  typename Math<C>::Logits x;
  auto full = [&](int s) { return shared_address(&shared.full[s]); };
  // One tile. Its partial logits are there; those of the next are made beside it (kAhead) or after it. One piece of code for all tiles: a second one
  // for the last would come from far away. So kAhead makes logits of a tile that does not exist, from whatever stands in the stage; nobody reads
  // them.
  auto step = [&](int tile, bool more) {
    const int next = stage + 1 == p.stages ? 0 : stage + 1;
    const uint32_t next_parity = next ? parity : parity ^ 1;
    typename Math<C>::Weights weights;
    if constexpr (C::kSharedSoftmax) {
      math.softmax_own(stage);
      meet_others<C>();
    }
    if (C::kAhead && more) mbar_wait(full(next), next_parity);
    if constexpr (C::kSharedSoftmax) {
      math.load_weights(stage, weights);
    } else {
      typename Math<C>::Values v;
      float scale[C::kSteps * 4];
      math.load_scales(stage, scale), math.load_scores(stage, tile & 1, v);
      if constexpr (C::kAhead) math.scores(next, query, x);
      math.softmax(v, scale, weights);
      if constexpr (C::kAhead) math.store_scores((tile + 1) & 1, x);
    }
    math.accumulate(stage, weights);
    math.leave(stage);
    if (!more) return;
    if constexpr (!C::kAhead) {
      mbar_wait(full(next), next_parity);
      math.scores(next, query, x);
      math.store_scores(C::kSharedSoftmax ? 0 : (tile + 1) & 1, x);
    }
    meet_others<C>();
    stage = next, parity = next_parity;
  };
  auto all_tiles_of_block = [&] {
    if (ring.tiles == 0) return;
    if constexpr (C::kFp8) query.normalise(p.job.fp16, math.g, math.j, math.multiplier);
    mbar_wait(full(0), 0);
    math.scores(0, query, x);
    math.store_scores(0, x);
    meet_others<C>();
#pragma unroll 1
    for (int tile = 0; tile < ring.tiles; ++tile) step(tile, tile + 1 < ring.tiles);
  };

  auto results = [&] {
    const float unscale = C::kFp8 ? pow2(math.scale_exponent - kFp16Shift + kE4m3Exponent) : 1.f;
    if (meets) meet_others<C>();  // the last rows and logits have been read
    if constexpr (!kEarly) target = target_of();
    if constexpr (C::kSharedSoftmax) {
      const float sum = math.over_own_head(math.sum[0], [](float a, float b) { return a + b; });
      const int thread = thread_anew();
      const SoftmaxShare own = softmax_share(thread >> 5 & 3, thread & 31, C::kTiles8, Math<C>::kPer);
      if (own.block == 0 && own.place == 0) *target.state = make_float2(math.reference[0], sum);
    }
#pragma unroll
    for (int n = 0; n < C::kTiles8; ++n)
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        const float(&o)[4] = math.out[m][n];
        target.sums[n * 1024 + m * 8] = make_float4(o[0] * unscale, o[2] * unscale, o[1] * unscale, o[3] * unscale);
      }
    if constexpr (!C::kSharedSoftmax) {
      static_assert(C::kTiles8 == 1 && C::kGroups == 1);
      float sum = math.sum[0];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if ((thread_anew() & 0x63) == 0) *target.state = make_float2(math.reference[0], sum);  // w = j = 0
    }
  };
  all_tiles_of_block();
  results();
  if (!meets) return;
  const auto [t, head0, split, token] = place_of_block<C>(p);
  if (p.num_splits == 2) meet<C, 2>(p, meeting, token, split, head0);
  else meet<C, 1>(p, meeting, token, split, head0);
}

template <class C>
MmaInstance mma_instance(const char* name) {
  return {name,           reinterpret_cast<const void*>(mma_kernel<C>), C::kFormat,     C::kHeads, C::kTokens, C::kStages,
          C::kAllThreads, static_cast<int>(sizeof(typename C::Shared)), C::kBlocksPerSm};
}

}  // namespace smla::cuda
