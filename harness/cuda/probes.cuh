// SPDX-License-Identifier: Apache-2.0
// Kernels that do one thing of known size: what times of real kernels are held against, and what the stopwatch is tested with.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace smla::probe {

__device__ inline int64_t first_thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t all_threads() { return int64_t{gridDim.x} * blockDim.x; }

inline __global__ void nothing() {}

/// Lasts so long, by the device's own clock.
inline __global__ void spin(uint64_t ns) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < ns);
}

/// Holds the stream for about so many clocks, so that what is enqueued behind it starts back to back.
inline __global__ void hold(long long clocks) {
  const long long begin = clock64();
  while (clock64() - begin < clocks) {}
}

/// Through L1 without staying there.
__device__ inline uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}
__device__ inline uint32_t load_once(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}
__device__ inline uint32_t folded(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }
__device__ inline uint32_t folded(uint32_t v) { return v; }
/// Never stores, and the compiler does not know.
__device__ inline void keep(uint32_t value, uint32_t* sink) {
  if (value == 0x12345678u) *sink = value;
}

inline __global__ void read_over(const uint4* from, int64_t n, uint32_t* sink) {
  constexpr int kInFlight = 4;
  uint32_t sum = 0;
  int64_t i = first_thread();
  for (; i + (kInFlight - 1) * all_threads() < n; i += kInFlight * all_threads()) {
    uint4 v[kInFlight];
    for (int k = 0; k < kInFlight; ++k) v[k] = load_once(from + i + k * all_threads());
    for (int k = 0; k < kInFlight; ++k) sum ^= folded(v[k]);
  }
  for (; i < n; i += all_threads()) sum ^= folded(load_once(from + i));
  keep(sum, sink);
}

/// Rows of a paged pool, named by lists.
struct GatherJob {
  const uint8_t* kv;
  const int32_t *indices, *topk_length;  // topk_length may be null
  int64_t page_stride_bytes, list_stride_bytes[2];
  uint32_t tokens, s_q, topk, page_size, num_slots, row_bytes;
};
/// The row of entry `i` of all lists, or null for one that names no key.
__device__ inline const uint8_t* row_of(const GatherJob& job, uint32_t i) {
  const uint32_t t = i / job.topk, entry = i - t * job.topk;
  if (job.topk_length && static_cast<int32_t>(entry) >= job.topk_length[t]) return nullptr;
  const auto* list = reinterpret_cast<const uint8_t*>(job.indices) + t / job.s_q * job.list_stride_bytes[0] + t % job.s_q * job.list_stride_bytes[1];
  const auto slot = static_cast<uint32_t>(reinterpret_cast<const int32_t*>(list)[entry]);
  if (slot >= job.num_slots) return nullptr;
  return job.kv + int64_t{slot / job.page_size} * job.page_stride_bytes + int64_t{slot % job.page_size} * job.row_bytes;
}
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
constexpr int kThreadsPerSm = 1536;
#else
constexpr int kThreadsPerSm = 2048;
#endif
/// One warp a row, as many warps as fit; the next row is looked up while this one is on its way. Unit: what a lane loads at once; divides row_bytes.
template <class Unit>
__global__ void __launch_bounds__(256, kThreadsPerSm / 256) gather_rows(GatherJob job, uint32_t* sink) {
  constexpr int kMost = (1152 + 32 * int{sizeof(Unit)} - 1) / (32 * int{sizeof(Unit)});
  const uint32_t warps = static_cast<uint32_t>(all_threads() / 32), total = job.tokens * job.topk, units = job.row_bytes / sizeof(Unit);
  const uint32_t lane = threadIdx.x % 32;
  uint32_t i = static_cast<uint32_t>(first_thread() / 32), sum = 0;
  const uint8_t* row = i < total ? row_of(job, i) : nullptr;
  for (; i < total; i += warps) {
    Unit v[kMost];
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      v[k] = Unit{};
      if (row && lane + 32 * k < units) v[k] = load_once(reinterpret_cast<const Unit*>(row) + lane + 32 * k);
    }
    row = i + warps < total ? row_of(job, i + warps) : nullptr;
#pragma unroll
    for (int k = 0; k < kMost; ++k) sum ^= folded(v[k]);
  }
  keep(sum, sink);
}
inline cudaError_t launch_gather(const GatherJob& job, int sm_count, uint32_t* sink, cudaStream_t stream) {
  constexpr int kThreads = 256, kWarpsPerSm = 64;
  const int64_t rows = int64_t{job.tokens} * job.topk, warps = rows < int64_t{kWarpsPerSm} * sm_count ? rows : int64_t{kWarpsPerSm} * sm_count;
  const auto blocks = static_cast<unsigned>((warps * 32 + kThreads - 1) / kThreads);
  const bool wide = job.row_bytes % 16 == 0 && job.page_stride_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(job.kv) % 16 == 0;
  if (rows == 0) return cudaSuccess;
  if (wide) gather_rows<uint4><<<blocks, kThreads, 0, stream>>>(job, sink);
  else gather_rows<uint32_t><<<blocks, kThreads, 0, stream>>>(job, sink);
  return cudaGetLastError();
}

}  // namespace smla::probe
