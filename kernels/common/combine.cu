// SPDX-License-Identifier: Apache-2.0
// One block = (token, pair of heads, 256 / kGroups units). Thread (group g, unit u) adds splits g, g + kGroups, ...; the groups then meet in shared
// memory. Latency decides: the first loads of the sums are in flight before the weights are known.
#include <algorithm>

#include "kernels/common/combine.h"
#include "kernels/common/job.cuh"

namespace smla::cuda {
namespace {

constexpr int kThreads = 256, kInFlight = 8;

template <UnitOrder kOrder>
struct Layout {
  static constexpr bool kAdjacent = kOrder != UnitOrder::mma16;
  static __device__ int head(int pair, int which) {
    return kOrder == UnitOrder::wgmma ? (pair >> 3) * 16 + (pair & 7) + 8 * which : 2 * pair + which;
  }
  static __device__ int column(int u) { return kOrder == UnitOrder::wgmma ? 2 * u : (u >> 3) * 16 + (kOrder == UnitOrder::mma8 ? 2 : 1) * (u & 7); }
};

template <UnitOrder kOrder, int kGroups>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Job job, const __grid_constant__ Partials partials) {
  using L = Layout<kOrder>;
  constexpr int kUnits = kThreads / kGroups;
  __shared__ float weight[2][kMaxSplits];
  __shared__ float warp_max[8], warp_sum[8];
  __shared__ float4 meet[kThreads];
  const int tid = threadIdx.x, ns = partials.num_splits;
  const int chunk = blockIdx.x % kGroups, t = blockIdx.x / kGroups / partials.pairs, pair = blockIdx.x / kGroups % partials.pairs;
  const int group = tid / kUnits, unit = chunk * kUnits + tid % kUnits;

  wait_for_previous_kernel();
  const float4* sums = partials.sums + (int64_t{t} * ns * partials.pairs + pair) * 256 + unit;
  const int64_t split_stride = int64_t{partials.pairs} * 256;
  float4 v[kInFlight];
#pragma unroll
  for (int i = 0; i < kInFlight; ++i)
    if (group + i * kGroups < ns) v[i] = __ldcg(sums + (group + i * kGroups) * split_stride);

  // Weights of both heads: half a block each.
  const int half = tid >> 7, lane = tid & 31, warp = tid >> 5;
  const float2* state = partials.state + (int64_t{t} * 2 * partials.pairs + L::head(pair, half)) * ns;
  float reference = -1e30f;
  for (int s = tid & 127; s < ns; s += 128) {
    const float2 x = __ldcg(state + s);
    if (x.y > 0.f) reference = fmaxf(reference, x.x);
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) reference = fmaxf(reference, __shfl_xor_sync(~0u, reference, o));
  if (lane == 0) warp_max[warp] = reference;
  __syncthreads();
  reference = fmaxf(fmaxf(warp_max[4 * half], warp_max[4 * half + 1]), fmaxf(warp_max[4 * half + 2], warp_max[4 * half + 3]));
  float sum = 0.f;
  for (int s = tid & 127; s < ns; s += 128) {
    const float2 x = __ldcg(state + s);
    const float w = x.y > 0.f ? exp2_approx(x.x - reference) : 0.f;
    weight[half][s] = w;
    sum = fmaf(w, x.y, sum);
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (lane == 0) warp_sum[warp] = sum;
  __syncthreads();

  float4 a = make_float4(0.f, 0.f, 0.f, 0.f);
  auto add = [&](int s, const float4& x) {  // a weight of 0 selects, it does not multiply: the units of an empty split hold anything
    const float w0 = weight[0][s], w1 = weight[1][s];
    if (w0 > 0.f) a.x = fmaf(w0, x.x, a.x), a.y = fmaf(w0, x.y, a.y);
    if (w1 > 0.f) a.z = fmaf(w1, x.z, a.z), a.w = fmaf(w1, x.w, a.w);
  };
#pragma unroll
  for (int i = 0; i < kInFlight; ++i)
    if (group + i * kGroups < ns) add(group + i * kGroups, v[i]);
  for (int s0 = group + kInFlight * kGroups; s0 < ns; s0 += kInFlight * kGroups) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (s0 + i * kGroups < ns) v[i] = __ldcg(sums + (s0 + i * kGroups) * split_stride);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (s0 + i * kGroups < ns) add(s0 + i * kGroups, v[i]);
  }
  meet[tid] = a;
  __syncthreads();
  if (tid >= max(kUnits, 32)) return;  // whole warps only: they still trade below
#pragma unroll
  for (int g = 1; g < kGroups; ++g) {
    const float4 x = meet[g * kUnits + tid % kUnits];
    a.x += x.x, a.y += x.y, a.z += x.z, a.w += x.w;
  }

  const Token token = token_of(job, t);
  const int h[2] = {L::head(pair, 0), L::head(pair, 1)};
  float2 y[2] = {make_float2(a.x, a.y), make_float2(a.z, a.w)};
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const bool exists = h[k] < job.h_q;
    const float reference_k = fmaxf(fmaxf(warp_max[4 * k], warp_max[4 * k + 1]), fmaxf(warp_max[4 * k + 2], warp_max[4 * k + 3]));
    const float sum_k = (warp_sum[4 * k] + warp_sum[4 * k + 1]) + (warp_sum[4 * k + 2] + warp_sum[4 * k + 3]);
    const float factor = exists ? output_factor(job, h[k], reference_k, sum_k) : 0.f;
    float low = y[k].x * factor, high = y[k].y * factor;
    int column = L::column(unit);
    if constexpr (!L::kAdjacent) {  // neighbours trade, so that each holds two adjacent columns: even c, c+1 of the first 8, odd of the second
      const bool odd = tid & 1;
      const float other = __shfl_xor_sync(~0u, odd ? low : high, 1);
      if (odd) low = other, column += 7;
      else high = other;
    }
    if (!exists || group != 0) continue;
    *reinterpret_cast<uint32_t*>(out_row(job, token, h[k]) + 2 * column) = pack16(job.fp16, low, high);
    if (unit == 0) *lse_of(job, token, h[k]) = natural_lse(reference_k, sum_k);
  }
}

template <UnitOrder kOrder>
const void* kernel_for(int groups) {
  switch (groups) {
    case 2:
      return reinterpret_cast<const void*>(combine_kernel<kOrder, 2>);
    case 4:
      return reinterpret_cast<const void*>(combine_kernel<kOrder, 4>);
    case 8:
      return reinterpret_cast<const void*>(combine_kernel<kOrder, 8>);
    default:
      return reinterpret_cast<const void*>(combine_kernel<kOrder, 16>);
  }
}

}  // namespace

cudaError_t launch_combine(const Job& job, const Partials& partials, UnitOrder order, bool overlap, cudaStream_t stream) {
  const int groups = partials.num_splits <= 8 ? 2 : partials.num_splits <= 16 ? 4 : partials.num_splits <= 64 ? 8 : 16;
  const void* kernel = order == UnitOrder::mma16  ? kernel_for<UnitOrder::mma16>(groups)
                       : order == UnitOrder::mma8 ? kernel_for<UnitOrder::mma8>(groups)
                                                  : kernel_for<UnitOrder::wgmma>(groups);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(int64_t{job.tokens} * partials.pairs * groups));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  Job job_copy = job;
  Partials partials_copy = partials;
  void* arguments[] = {&job_copy, &partials_copy};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace smla::cuda
