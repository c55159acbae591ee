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

/// Where a thread writes a unit: neighbours trade, so that each holds two adjacent columns, even units c, c+1 of the first 8, odd ones of the second.
template <UnitOrder kOrder>
__device__ __forceinline__ int written_column(int unit) {
  return UnitLayout<kOrder>::column(unit) + (!UnitLayout<kOrder>::kAdjacent && unit & 1 ? 7 : 0);
}
/// Two columns of a unit as the word to write there. Whole warps call it, neighbouring lanes with neighbouring units.
template <UnitOrder kOrder>
__device__ __forceinline__ uint32_t written_word(bool fp16, int unit, float low, float high) {
  if constexpr (!UnitLayout<kOrder>::kAdjacent) {
    const bool odd = unit & 1;
    const float other = __shfl_xor_sync(~0u, odd ? low : high, 1);
    if (odd) low = other;
    else high = other;
  }
  return pack16(fp16, low, high);
}

/// Writes one merged unit, and with unit 0 the pair's lse; called as written_word is. `live`: this lane writes.
template <UnitOrder kOrder>
__device__ __forceinline__ void write_unit(const Job& job, Token token, int pair, int unit, const float4& a, const PairState& state, bool live) {
  const float2 y[2] = {make_float2(a.x, a.y), make_float2(a.z, a.w)};
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int h = UnitLayout<kOrder>::head(pair, k);
    const bool exists = h < job.h_q;
    const float factor = exists ? output_factor(job, h, state.reference[k], state.sum[k]) : 0.f;
    const uint32_t word = written_word<kOrder>(job.fp16, unit, y[k].x * factor, y[k].y * factor);
    if (!exists || !live) continue;
    *reinterpret_cast<uint32_t*>(out_row(job, token, h) + 2 * written_column<kOrder>(unit)) = word;
    if (unit == 0) *lse_of(job, token, h) = natural_lse(state.reference[k], state.sum[k]);
  }
}

/// What the groups of a block hand to each other.
struct MergeMeeting {
  float4 sums[256];
  float4 state[8];  // of each group: {reference, sum} of both heads
};

/// Merges `units` units (32 to 256, a power of two) of one pair over `ns` splits; all 256 threads of the block. Group g of `units` threads adds
/// splits g, g + groups, ..., eight at a time, relative to the largest reference that it has seen; then the groups meet. Fixed order. Latency
/// decides: addresses are known before the wait, a batch is one round of loads, its states by lane (split i % 8, head i / 8 % 2), there is one
/// barrier, and lse is the last warp's.
template <UnitOrder kOrder>
struct Merge {
  static constexpr int kThreads = 256, kBatch = 8, kGroups = 8;  // kGroups: at most
  const Job& job;
  MergeMeeting& meeting;
  int units, groups, group, unit, pair;
  uint32_t step_bytes;   // from a split of a batch to the next
  const char* sums;      // this thread's unit of split `group`
  const float2* states;  // this lane's
  uint8_t* to[2];        // output words of both heads
  float* lse;
  bool exists[2];

  __device__ __forceinline__ Merge(const Job& job_, const Partials& partials, MergeMeeting& meeting_, int t, int pair_, int first_unit, int units_)
      : job(job_), meeting(meeting_), units(units_), pair(pair_) {
    const int tid = threadIdx.x, lane = tid & 31;
    groups = kThreads / units, group = tid / units, unit = first_unit + tid % units;
    const int64_t split_bytes = int64_t{partials.pairs} * 4096;
    step_bytes = static_cast<uint32_t>(groups * split_bytes);
    sums =
        reinterpret_cast<const char*>(partials.sums + (int64_t{t} * partials.num_splits * partials.pairs + pair) * 256 + unit) + group * split_bytes;
    const int head = UnitLayout<kOrder>::head(pair, lane / kBatch % 2);
    states = partials.state + (int64_t{t} * 2 * partials.pairs + head) * partials.num_splits + group + lane % kBatch * groups;
    const Token token = token_of(job, t);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int h = UnitLayout<kOrder>::head(pair, k);
      exists[k] = h < job.h_q;
      to[k] = out_row(job, token, h) + 2 * written_column<kOrder>(unit);
    }
    lse = lse_of(job, token, UnitLayout<kOrder>::head(pair, 0));
    asm volatile(""
                 : "+l"(sums), "+l"(states), "+l"(to[0]), "+l"(to[1]), "+l"(lse), "+r"(step_bytes), "+r"(groups), "+r"(group), "+r"(unit));  // kept
  }
  /// `write`: false = rehearse, with ns = 0: every instruction of a batch, and no load.
  __device__ __forceinline__ void run(int ns, bool write) {
    const int tid = threadIdx.x, lane = tid & 31;
    PairState state;
    float4 a = make_float4(0.f, 0.f, 0.f, 0.f);
    const char* from = sums;
    const float2* own = states;
#pragma unroll 1
    for (int first = group, end = write ? ns : group + 1; first < end; first += kBatch * groups) {
      const int left = ns - first;
      const float2 x = lane % kBatch * groups < left ? __ldcg(own) : make_float2(0.f, 0.f);
      float4 v[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (i * groups < left) v[i] = __ldcg(reinterpret_cast<const float4*>(from + uint64_t{step_bytes} * i));
      from += uint64_t{step_bytes} * kBatch, own += kBatch * groups;
      float reference = lane & kBatch ? state.reference[1] : state.reference[0];
      if (x.y > 0.f) reference = fmaxf(reference, x.x);
#pragma unroll
      for (int o = 1; o < kBatch; o <<= 1) reference = fmaxf(reference, __shfl_xor_sync(~0u, reference, o));
      const float weight = x.y > 0.f ? exp2_approx(x.x - reference) : 0.f;
      float sum = weight * x.y, change[2];
#pragma unroll
      for (int o = 1; o < kBatch; o <<= 1) sum += __shfl_xor_sync(~0u, sum, o);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float now = __shfl_sync(~0u, reference, kBatch * k);
        change[k] = exp2_approx(state.reference[k] - now);
        state.reference[k] = now;
        state.sum[k] = fmaf(change[k], state.sum[k], __shfl_sync(~0u, sum, kBatch * k));
      }
      a.x *= change[0], a.y *= change[0], a.z *= change[1], a.w *= change[1];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {  // a weight of 0 selects, it does not multiply: the units of an empty split hold anything
        const float w0 = __shfl_sync(~0u, weight, i), w1 = __shfl_sync(~0u, weight, kBatch + i);
        if (w0 > 0.f) a.x = fmaf(w0, v[i].x, a.x), a.y = fmaf(w0, v[i].y, a.y);
        if (w1 > 0.f) a.z = fmaf(w1, v[i].z, a.z), a.w = fmaf(w1, v[i].w, a.w);
      }
    }
    if (groups > 1) {
      meeting.sums[tid] = a;
      if (tid % units == 0) meeting.state[group] = make_float4(state.reference[0], state.sum[0], state.reference[1], state.sum[1]);
      __syncthreads();
      if (group && tid < kThreads - 32) return;  // the last warp stays for lse
      state = {};
      a = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        if (g < groups)
          state.reference[0] = fmaxf(state.reference[0], meeting.state[g].x), state.reference[1] = fmaxf(state.reference[1], meeting.state[g].z);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        if (g < groups) {
          const float4 v = meeting.sums[tid % units + g * units], s = meeting.state[g];
          const float w0 = exp2_approx(s.x - state.reference[0]), w1 = exp2_approx(s.z - state.reference[1]);
          state.sum[0] = fmaf(w0, s.y, state.sum[0]), state.sum[1] = fmaf(w1, s.w, state.sum[1]);
          a.x = fmaf(w0, v.x, a.x), a.y = fmaf(w0, v.y, a.y), a.z = fmaf(w1, v.z, a.z), a.w = fmaf(w1, v.w, a.w);
        }
    }
    const float2 y[2] = {make_float2(a.x, a.y), make_float2(a.z, a.w)};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int h = UnitLayout<kOrder>::head(pair, k);
      const float factor = exists[k] ? output_factor(job, h, state.reference[k], state.sum[k]) : 0.f;
      const uint32_t word = written_word<kOrder>(job.fp16, unit, y[k].x * factor, y[k].y * factor);
      if (exists[k] && group == 0 && write) *reinterpret_cast<uint32_t*>(to[k]) = word;
    }
    const int k = tid - (kThreads - 2);
    if (k >= 0 && unit < units && (k ? exists[1] : exists[0]) && write)
      lse[UnitLayout<kOrder>::head(0, k)] = natural_lse(k ? state.reference[1] : state.reference[0], k ? state.sum[1] : state.sum[0]);
  }
};

}  // namespace smla::cuda
