// SPDX-License-Identifier: Apache-2.0
// Rows of a paged pool loaded in several ways, and nothing done with them: the fastest way is what no kernel that needs these rows beats.
#pragma once
#include <algorithm>
#include <string>

#include "harness/cuda/probes.cuh"
#include "harness/worker/pool_rows.h"
#include "kernels/common/ptx.cuh"

namespace smla::probe {

constexpr int kMostRow_bytes = 1152;
constexpr int kGatherThreads = 256;
constexpr int kBarrier_bytes = 16;

/// Null beyond the last one.
__device__ inline const std::byte* row_of(const PoolRows& rows, int64_t i) {
  if (i >= rows.n) return nullptr;
  const auto slot = static_cast<uint32_t>(rows.slots[i]), page_size = static_cast<uint32_t>(rows.page_size);
  return rows.kv + int64_t{slot / page_size} * rows.page_stride_bytes + int64_t{slot % page_size} * rows.row_bytes;
}

/// A warp has kRows rows under way at once, in registers, and ends.
template <int kRows>
__global__ void __launch_bounds__(kGatherThreads) gather_by_loads(PoolRows rows, uint32_t* sink) {
  constexpr int kLoads = (kMostRow_bytes + 32 * 16 - 1) / (32 * 16);
  const uint32_t lane = threadIdx.x % 32, units = static_cast<uint32_t>(rows.row_bytes) / 16;
  const std::byte* row[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) row[r] = row_of(rows, first_thread() / 32 * kRows + r);
  uint4 v[kRows][kLoads];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      v[r][k] = uint4{};
      if (row[r] && lane + 32 * k < units) v[r][k] = load_once(reinterpret_cast<const uint4*>(row[r]) + lane + 32 * k);
    }
  uint32_t sum = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int k = 0; k < kLoads; ++k) sum ^= folded(v[r][k]);
  keep(sum, sink);
}

/// A warp has 32 rows under way at once, by bulk copies into shared memory, and as many warps as fit are there. Fastest for some
/// rows that are in L2.
inline __global__ void __launch_bounds__(32) gather_by_bulk(PoolRows rows) {
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t lane = threadIdx.x, bar = cuda::shared_address(shared), row_bytes = static_cast<uint32_t>(rows.row_bytes);
  if (lane == 0) cuda::mbar_init(bar, 32);
  cuda::mbar_init_fence();
  __syncthreads();
  uint32_t parity = 0;
  for (int64_t i = int64_t{32} * blockIdx.x; i < rows.n; i += int64_t{32} * gridDim.x, parity ^= 1) {
    const std::byte* row = row_of(rows, i + lane);
    cuda::mbar_arrive_expect_tx(bar, row ? row_bytes : 0);
    if (row) cuda::bulk_copy(bar + kBarrier_bytes + lane * row_bytes, row, row_bytes, bar);
    cuda::mbar_wait(bar, parity);
  }
}

struct ByLoads {
  int rows;  // a warp
  void (*kernel)(PoolRows, uint32_t*);
};
constexpr ByLoads kByLoads[] = {{1, gather_by_loads<1>}, {2, gather_by_loads<2>}, {4, gather_by_loads<4>}};
constexpr int kBulkWay = std::size(kByLoads);

/// Ways 0, 1, ... of this device.
inline int gather_ways(const cudaDeviceProp& device) { return kBulkWay + (device.major >= 9); }
inline std::string gather_way_text(int way) {
  return way == kBulkWay ? "bulk copies" : std::to_string(kByLoads[way].rows) + (way == 0 ? " row a warp" : " rows a warp");
}
inline cudaError_t launch_gather(const PoolRows& rows, int way, const cudaDeviceProp& device, uint32_t* sink, cudaStream_t stream) {
  const bool aligned = rows.row_bytes % 16 == 0 && rows.page_stride_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(rows.kv) % 16 == 0;
  if (!aligned || rows.row_bytes > kMostRow_bytes) return cudaErrorInvalidValue;
  if (way == kBulkWay) {
    const int64_t bytes = kBarrier_bytes + 32 * int64_t{rows.row_bytes}, room = static_cast<int64_t>(device.sharedMemPerMultiprocessor);
    const int64_t fit = std::min<int64_t>(device.maxBlocksPerMultiProcessor, room / (bytes + static_cast<int64_t>(device.reservedSharedMemPerBlock)));
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((rows.n + 31) / 32, 1, fit * device.multiProcessorCount));
    gather_by_bulk<<<blocks, 32, static_cast<size_t>(bytes), stream>>>(rows);
  } else {
    const ByLoads& by = kByLoads[way];
    const int64_t in_block = kGatherThreads / 32 * by.rows;
    const auto blocks = static_cast<unsigned>(std::max<int64_t>(1, (rows.n + in_block - 1) / in_block));
    by.kernel<<<blocks, kGatherThreads, 0, stream>>>(rows, sink);
  }
  return cudaGetLastError();
}

}  // namespace smla::probe
