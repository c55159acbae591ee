// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/common/job.cuh"

namespace smla::cuda {

inline constexpr int kCompactThreads = 256;

/// Moves the valid entries of each token's list to the front, order kept: slots [T][max_entries], counts [T]. One block a token.
__global__ void __launch_bounds__(kCompactThreads) compact_lists(const __grid_constant__ Job job, int32_t* slots, int32_t* counts) {
  __shared__ int in_warp[kCompactThreads / 32];
  const int t = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const Token token = token_of(job, t);
  const int32_t* list = list_of(job.keys, token);
  int32_t* to = slots + int64_t{t} * job.keys.max_entries;
  const int n = entries_of(job.keys, token);
  int found = 0;
  for (int e0 = 0; e0 < n; e0 += kCompactThreads) {
    const int e = e0 + static_cast<int>(threadIdx.x), slot = e < n ? __ldg(list + e) : -1;
    const bool valid = static_cast<uint32_t>(slot) < job.keys.limit;
    const unsigned votes = __ballot_sync(~0u, valid);
    if (lane == 0) in_warp[warp] = __popc(votes);
    __syncthreads();
    int before = found, all = 0;
#pragma unroll
    for (int i = 0; i < kCompactThreads / 32; ++i) {
      if (i < warp) before += in_warp[i];
      all += in_warp[i];
    }
    if (valid) to[before + __popc(votes & ((1u << lane) - 1))] = slot;
    found += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) counts[t] = found;
}

}  // namespace smla::cuda
