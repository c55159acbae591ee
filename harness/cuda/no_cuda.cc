// SPDX-License-Identifier: Apache-2.0
// A build without CUDA.
#include "harness/cuda/cuda_device.h"
#include "harness/cuda/gpu_peaks.h"
#include "harness/cuda/probes.h"

namespace smla {
namespace {
constexpr const char* kWhy = "this build has no CUDA (configured without nvcc)";
}
Device* open_cuda_device(int, std::string& why) {
  why = kWhy;
  return nullptr;
}
bool describe_gpu(int, GpuInfo&, std::string& why) {
  why = kWhy;
  return false;
}
std::vector<Peak> measure_gpu_peaks(int) { return {}; }
void enqueue_spin(void*, double) { throw std::runtime_error(kWhy); }
void enqueue_delay(void*, double) { throw std::runtime_error(kWhy); }
void enqueue_copy(void*, void*, const void*, int64_t) { throw std::runtime_error(kWhy); }
void enqueue_read(void*, const void*, int64_t, bool) { throw std::runtime_error(kWhy); }
void enqueue_rejected(void*) { throw std::runtime_error(kWhy); }
void enqueue_fill(void*, void*, int64_t, uint8_t, Where) { throw std::runtime_error(kWhy); }
}  // namespace smla
