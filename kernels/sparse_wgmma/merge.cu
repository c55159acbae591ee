// SPDX-License-Identifier: Apache-2.0
// The merge of splits for many pairs of heads: every warp for itself. (In common/: few pairs and many splits, a block for a few units.)
#include "kernels/common/combine.cuh"
#include "kernels/sparse_wgmma/kernel.h"

namespace smla::cuda {
namespace {

constexpr int kThreads = 256;

/// Merges 32 kPerLane units of one pair with one warp of each of `groups` groups, which take splits group, group + groups, ... and then meet; all
/// threads of the block call it. Fixed order. Latency decides: the first sums are in flight before the weights are known, a lone warp meets no
/// barrier.
template <int kPerLane>
__device__ __forceinline__ void merge_units(const Job& job, const Partials& partials, int first_token, int t, int pair, int first_unit, int group,
                                            int groups, int ns, float4 (&meet)[kThreads], bool write) {
  constexpr int kInFlight = kPerLane == 1 ? 8 : 16 / kPerLane;
  const int lane = threadIdx.x & 31;
  const float4* sums = partials.sums + (int64_t{t} * partials.num_splits * partials.pairs + pair) * 256 + first_unit + lane;
  const int64_t split_stride = int64_t{partials.pairs} * 256;
  float4 v[kInFlight][kPerLane], a[kPerLane] = {};
  auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
#pragma unroll
      for (int u = 0; u < kPerLane; ++u)
        if (first + i * groups < ns) v[i][u] = __ldcg(sums + (first + i * groups) * split_stride + u * 32);
  };
  load(group);

  const float2* states[2];
  float2 x[2];
  PairState state;
  auto load_states = [&](int s) {
#pragma unroll
    for (int k = 0; k < 2; ++k) x[k] = s < ns ? __ldcg(states[k] + s) : make_float2(-1e30f, 0.f);
  };
#pragma unroll
  for (int k = 0; k < 2; ++k)
    states[k] = partials.state + (int64_t{t} * 2 * partials.pairs + UnitLayout<UnitOrder::wgmma>::head(pair, k)) * partials.num_splits;
  int s = lane;
  do {  // lane s % 32 holds split s
    load_states(s);
#pragma unroll
    for (int k = 0; k < 2; ++k)
      if (x[k].y > 0.f) state.reference[k] = fmaxf(state.reference[k], x[k].x);
    s += 32;
  } while (s - lane < ns);
#pragma unroll
  for (int o = 16; o; o >>= 1)
#pragma unroll
    for (int k = 0; k < 2; ++k) state.reference[k] = fmaxf(state.reference[k], __shfl_xor_sync(~0u, state.reference[k], o));

  int base = 0;
  do {
    if (ns > 32) load_states(base + lane);
    float w[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) w[k] = x[k].y > 0.f ? exp2_approx(x[k].x - state.reference[k]) : 0.f, state.sum[k] = fmaf(w[k], x[k].y, state.sum[k]);
    int first = group;
    do {
      if (base + first > group) load(base + first);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {  // a weight of 0 selects, it does not multiply: the units of an empty split hold anything
        const float w0 = __shfl_sync(~0u, w[0], first + i * groups), w1 = __shfl_sync(~0u, w[1], first + i * groups);
#pragma unroll
        for (int u = 0; u < kPerLane; ++u) {
          if (w0 > 0.f) a[u].x = fmaf(w0, v[i][u].x, a[u].x), a[u].y = fmaf(w0, v[i][u].y, a[u].y);
          if (w1 > 0.f) a[u].z = fmaf(w1, v[i][u].z, a[u].z), a[u].w = fmaf(w1, v[i][u].w, a[u].w);
        }
      }
      first += kInFlight * groups;
    } while (first < 32 && base + first < ns);
    base += 32;
  } while (base < ns);
#pragma unroll
  for (int o = 16; o; o >>= 1)
#pragma unroll
    for (int k = 0; k < 2; ++k) state.sum[k] += __shfl_xor_sync(~0u, state.sum[k], o);

  if (groups > 1) {  // kPerLane = 1
    meet[threadIdx.x] = a[0];
    __syncthreads();
    if (group) return;
    for (int g = 1; g < groups; ++g) {
      const float4 other = meet[threadIdx.x + 32 * g];
      a[0].x += other.x, a[0].y += other.y, a[0].z += other.z, a[0].w += other.w;
    }
  }
#pragma unroll
  for (int u = 0; u < kPerLane; ++u)
    write_unit<UnitOrder::wgmma>(job, token_of(job, first_token + t), pair, first_unit + u * 32 + lane, a[u], state, write);
}

template <int kPerLane>
__global__ void __launch_bounds__(kThreads, 2)
    merge_kernel(const __grid_constant__ Job job, const __grid_constant__ Partials partials, int first_token, int groups) {
  __shared__ float4 meet[kThreads];
  const int warp = static_cast<int>(threadIdx.x) / 32, group = warp % groups;
  const int64_t unit = (int64_t{blockIdx.x} * (kThreads / 32) + warp) / groups * 32 * kPerLane;
  const int row = static_cast<int>(unit / 256), t = row / partials.pairs, pair = row - t * partials.pairs;
#pragma unroll 1
  for (int live = 0; live < 2; ++live) {  // a rehearsal over no splits: instructions come from far away
    if (live) wait_for_previous_kernel();
    merge_units<kPerLane>(job, partials, first_token, t, pair, static_cast<int>(unit % 256), group, groups, live ? partials.num_splits : 0, meet,
                          live);
    if (groups > 1) __syncthreads();
  }
}

}  // namespace

cudaError_t launch_merge(const Job& job, const Partials& partials, int first_token, cudaStream_t stream) {
  // Few enough blocks that all are resident, each lane with 8 or 16 loads in flight.
  const int splits = partials.num_splits, per_lane = splits <= 4 ? 4 : splits <= 8 ? 2 : 1;
  int groups = splits <= 8 ? 1 : splits <= 16 ? 2 : 4;
  const void* kernel = per_lane == 4   ? reinterpret_cast<const void*>(merge_kernel<4>)
                       : per_lane == 2 ? reinterpret_cast<const void*>(merge_kernel<2>)
                                       : reinterpret_cast<const void*>(merge_kernel<1>);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(int64_t{job.tokens - first_token} * partials.pairs * groups / per_lane));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  Job job_copy = job;
  Partials partials_copy = partials;
  void* arguments[] = {&job_copy, &partials_copy, &first_token, &groups};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace smla::cuda
