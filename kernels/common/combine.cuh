// SPDX-License-Identifier: Apache-2.0
// What every merge of partials shares: where a unit stands in the output, and the write of a merged one.
#pragma once
#include "kernels/common/combine.h"
#include "kernels/common/job.cuh"

namespace smla::cuda {

template <UnitOrder kOrder>
struct UnitLayout {
  static constexpr bool kAdjacent = kOrder != UnitOrder::mma16;
  static __device__ int head(int pair, int which) {
    return kOrder == UnitOrder::wgmma ? (pair >> 3) * 16 + (pair & 7) + 8 * which : 2 * pair + which;
  }
  static __device__ int column(int u) { return kOrder == UnitOrder::wgmma ? 2 * u : (u >> 3) * 16 + (kOrder == UnitOrder::mma8 ? 2 : 1) * (u & 7); }
};

/// Softmax state of a pair's two heads over all splits.
struct PairState {
  float reference[2] = {-1e30f, -1e30f}, sum[2] = {0.f, 0.f};
};

/// Writes one merged unit, and with unit 0 the pair's lse. Whole warps call it, neighbouring lanes with neighbouring units; `live`: this lane writes.
template <UnitOrder kOrder>
__device__ __forceinline__ void write_unit(const Job& job, Token token, int pair, int unit, const float4& a, const PairState& state, bool live) {
  using L = UnitLayout<kOrder>;
  const float2 y[2] = {make_float2(a.x, a.y), make_float2(a.z, a.w)};
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int h = L::head(pair, k);
    const bool exists = h < job.h_q;
    const float factor = exists ? output_factor(job, h, state.reference[k], state.sum[k]) : 0.f;
    float low = y[k].x * factor, high = y[k].y * factor;
    int column = L::column(unit);
    if constexpr (!L::kAdjacent) {  // neighbours trade, so that each holds two adjacent columns: even c, c+1 of the first 8, odd of the second
      const bool odd = unit & 1;
      const float other = __shfl_xor_sync(~0u, odd ? low : high, 1);
      if (odd) low = other, column += 7;
      else high = other;
    }
    if (!exists || !live) continue;
    *reinterpret_cast<uint32_t*>(out_row(job, token, h) + 2 * column) = pack16(job.fp16, low, high);
    if (unit == 0) *lse_of(job, token, h) = natural_lse(state.reference[k], state.sum[k]);
  }
}

/// Scratch of merge_share.
struct MergeScratch {
  float4 meet[256];
  float weight[2][kMaxSplits];
  float maximum[2][4], sum[2][4];
};

/// Merges `units` units (a power of two, at most the block's 128 or 256 threads) of one pair over `ns` splits; all threads of the block. Thread
/// (group g, unit u) adds splits g, g + groups, ...; the groups then meet. Fixed order. Latency decides: the first sums are in flight before the
/// weights are known. `write`: false = rehearse.
template <UnitOrder kOrder>
__device__ __forceinline__ void merge_share(const Job& job, const Partials& partials, int t, int pair, int first_unit, int units, int ns,
                                            MergeScratch& scratch, bool write) {
  constexpr int kInFlight = 8;
  const int tid = threadIdx.x, threads = blockDim.x, lane = tid & 31, half_threads = threads >> 1, half = tid >= half_threads;
  const int groups = threads / units, group = tid / units, unit = first_unit + tid % units, warps = half_threads >> 5;  // warps: of each half
  const float4* sums = partials.sums + (int64_t{t} * partials.num_splits * partials.pairs + pair) * 256 + unit;
  const int64_t split_stride = int64_t{partials.pairs} * 256;
  float4 v[kInFlight];
#pragma unroll
  for (int i = 0; i < kInFlight; ++i)
    if (group + i * groups < ns) v[i] = __ldcg(sums + (group + i * groups) * split_stride);

  // Weights of both heads: half a block each.
  const float2* states = partials.state + (int64_t{t} * 2 * partials.pairs + UnitLayout<kOrder>::head(pair, half)) * partials.num_splits;
  const int s_first = tid & (half_threads - 1);
  const float2 none = make_float2(-1e30f, 0.f), first = s_first < ns ? __ldcg(states + s_first) : none;
  float reference = first.y > 0.f ? first.x : -1e30f;
  for (int s = s_first + half_threads; s < ns; s += half_threads) {
    const float2 x = __ldcg(states + s);
    if (x.y > 0.f) reference = fmaxf(reference, x.x);
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) reference = fmaxf(reference, __shfl_xor_sync(~0u, reference, o));
  if (lane == 0) scratch.maximum[half][s_first >> 5] = reference;
  __syncthreads();
  PairState state;
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < warps) state.reference[k] = fmaxf(state.reference[k], scratch.maximum[k][i]);
  const float mine = half ? state.reference[1] : state.reference[0];
  float sum = 0.f;
  for (int s = s_first; s < ns; s += half_threads) {
    const float2 x = s == s_first ? first : __ldcg(states + s);
    const float w = x.y > 0.f ? exp2_approx(x.x - mine) : 0.f;
    scratch.weight[half][s] = w;
    sum = fmaf(w, x.y, sum);
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (lane == 0) scratch.sum[half][s_first >> 5] = sum;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < warps) state.sum[k] += scratch.sum[k][i];

  float4 a = make_float4(0.f, 0.f, 0.f, 0.f);
  auto add = [&](int s, const float4& x) {  // a weight of 0 selects, it does not multiply: the units of an empty split hold anything
    const float w0 = scratch.weight[0][s], w1 = scratch.weight[1][s];
    if (w0 > 0.f) a.x = fmaf(w0, x.x, a.x), a.y = fmaf(w0, x.y, a.y);
    if (w1 > 0.f) a.z = fmaf(w1, x.z, a.z), a.w = fmaf(w1, x.w, a.w);
  };
#pragma unroll
  for (int i = 0; i < kInFlight; ++i)
    if (group + i * groups < ns) add(group + i * groups, v[i]);
#pragma unroll 1
  for (int s0 = group + kInFlight * groups; s0 < ns; s0 += kInFlight * groups) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (s0 + i * groups < ns) v[i] = __ldcg(sums + (s0 + i * groups) * split_stride);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (s0 + i * groups < ns) add(s0 + i * groups, v[i]);
  }
#pragma unroll 1
  for (int o = units; o < 32; o <<= 1) {  // groups of one warp
    a.x += __shfl_xor_sync(~0u, a.x, o), a.y += __shfl_xor_sync(~0u, a.y, o);
    a.z += __shfl_xor_sync(~0u, a.z, o), a.w += __shfl_xor_sync(~0u, a.w, o);
  }
  const int width = max(units, 32);
  if (width < threads) {
    scratch.meet[tid] = a;
    __syncthreads();
    if (tid < width)
      for (int i = tid + width; i < threads; i += width) {
        const float4 x = scratch.meet[i];
        a.x += x.x, a.y += x.y, a.z += x.z, a.w += x.w;
      }
  }
  if (tid < width) write_unit<kOrder>(job, token_of(job, t), pair, unit, a, state, write && group == 0);
}

}  // namespace smla::cuda
