// SPDX-License-Identifier: Apache-2.0
// Kernels that do one thing of known size: what times of real kernels are held against, and what the stopwatch is tested with.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
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

/// Microseconds between two events around what `work` enqueues, behind a kernel that holds the stream for some 30 us: longer than the host takes to
/// enqueue it.
template <class F>
cudaError_t timed_us(cudaStream_t stream, cudaEvent_t begin, cudaEvent_t end, F&& work, double& us) {
  hold<<<1, 1, 0, stream>>>(60'000);
  cudaError_t error = cudaEventRecord(begin, stream);
  if (error != cudaSuccess) return error;
  work();
  float ms = 0;
  if ((error = cudaEventRecord(end, stream)) == cudaSuccess && (error = cudaEventSynchronize(end)) == cudaSuccess)
    error = cudaEventElapsedTime(&ms, begin, end);
  us = static_cast<double>(ms) * 1e3;
  return error;
}

/// Through L1 without staying there. L2 gives up such a line first: it displaces its like and nothing else.
__device__ inline uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}
__device__ inline uint32_t folded(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }
/// Never stores, and the compiler does not know.
__device__ inline void keep(uint32_t value, uint32_t* sink) {
  if (value == 0x12345678u) *sink = value;
}

/// To stay in L2 before all other lines. ld.global.L2::evict_last alone, without a policy, is not there for 16 bytes before sm_100.
__device__ inline uint4 load_to_stay(const uint4* from) {
  uint4 v;
  asm volatile(
      "{\n.reg .b64 policy;\ncreatepolicy.fractional.L2::evict_last.b64 policy, 1.0;\n"
      "ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], policy;\n}"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from));
  return v;
}
template <bool kToStay>
__global__ void read_over(const uint4* from, int64_t n, uint32_t* sink) {
  const auto load = [&](int64_t i) { return kToStay ? load_to_stay(from + i) : load_once(from + i); };
  constexpr int kInFlight = 4;
  uint32_t sum = 0;
  int64_t i = first_thread();
  for (; i + (kInFlight - 1) * all_threads() < n; i += kInFlight * all_threads()) {
    uint4 v[kInFlight];
    for (int k = 0; k < kInFlight; ++k) v[k] = load(i + k * all_threads());
    for (int k = 0; k < kInFlight; ++k) sum ^= folded(v[k]);
  }
  for (; i < n; i += all_threads()) sum ^= folded(load(i));
  keep(sum, sink);
}
/// Lines that were to stay become ordinary ones.
inline __global__ void release_l2(const std::byte* from, int64_t bytes) {
  constexpr int kLine_bytes = 128;
  for (int64_t i = first_thread() * kLine_bytes; i < bytes; i += all_threads() * kLine_bytes)
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(from + i) : "memory");
}

/// Reads all of it once, in order.
inline void launch_read_over(const void* from, int64_t bytes, uint32_t* sink, const cudaDeviceProp& device, cudaStream_t stream,
                             bool to_stay = false) {
  const auto blocks = static_cast<unsigned>(2 * device.multiProcessorCount);
  (to_stay ? read_over<true> : read_over<false>)<<<blocks, 1024, 0, stream>>>(static_cast<const uint4*>(from), bytes / 16, sink);
}

/// Reads `bytes` (a multiple of 128), and nothing that was in L2 before is there afterwards if they are more than it holds. Ordinary loads would
/// leave lines that were loaded to stay; load_once leaves all but its like (H200: after 480 MB of it rows that came by bulk copies are all still
/// there). What is left has no priority over what comes.
inline void launch_clear_l2(const void* from, int64_t bytes, uint32_t* sink, const cudaDeviceProp& device, cudaStream_t stream) {
  launch_read_over(from, bytes, sink, device, stream, true);
  release_l2<<<static_cast<unsigned>(2 * device.multiProcessorCount), 1024, 0, stream>>>(static_cast<const std::byte*>(from), bytes);
}

}  // namespace smla::probe
