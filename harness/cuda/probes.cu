// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "harness/cuda/probes.cuh"
#include "harness/cuda/probes.h"

namespace smla {
namespace {

void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
cudaStream_t cuda(void* stream) { return static_cast<cudaStream_t>(stream); }

double highest_clock_mhz() {
  static const double mhz = [] {
    int device = 0, khz = 0;
    must(cudaGetDevice(&device));
    must(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device));
    return khz / 1000.0;
  }();
  return mhz;
}

__global__ void fill_slowly(uint8_t* to, int64_t bytes, uint8_t value) {
  const long long begin = clock64();
  while (clock64() - begin < 20'000) {}  // so that who does not wait for it is ahead of it
  for (int64_t i = probe::first_thread(); i < bytes; i += probe::all_threads()) to[i] = value;
}

}  // namespace

void enqueue_spin(void* stream, double us) { probe::spin<<<1, 1, 0, cuda(stream)>>>(static_cast<uint64_t>(us * 1e3)); }
void enqueue_delay(void* stream, double us) { probe::hold<<<1, 1, 0, cuda(stream)>>>(static_cast<long long>(us * highest_clock_mhz())); }
void enqueue_copy(void* stream, void* to, const void* from, int64_t bytes) {
  must(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, cuda(stream)));
}
void enqueue_read(void* stream, const void* from, int64_t bytes, bool to_stay) {
  static uint32_t* sink = nullptr;
  static cudaDeviceProp device;
  if (!sink) {
    int ordinal = 0;
    must(cudaGetDevice(&ordinal));
    must(cudaGetDeviceProperties(&device, ordinal));
    must(cudaMalloc(&sink, sizeof *sink));
  }
  probe::launch_read_over(from, bytes, sink, device, cuda(stream), to_stay);
}
void enqueue_rejected(void* stream) { probe::nothing<<<1, 4096, 0, cuda(stream)>>>(); }

void enqueue_fill(void* stream, void* to, int64_t bytes, uint8_t value, Where where) {
  static cudaStream_t own = nullptr;
  static cudaEvent_t fork = nullptr, join = nullptr;
  if (!own) {
    must(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    must(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  }
  const bool forked = where == Where::forked;
  if (forked) must(cudaEventRecord(fork, cuda(stream)));
  if (forked) must(cudaStreamWaitEvent(own, fork));
  fill_slowly<<<64, 256, 0, where == Where::stream ? cuda(stream) : own>>>(static_cast<uint8_t*>(to), bytes, value);
  if (forked) must(cudaEventRecord(join, own));
  if (forked) must(cudaStreamWaitEvent(cuda(stream), join));
}

}  // namespace smla
