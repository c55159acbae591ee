// SPDX-License-Identifier: Apache-2.0
// A build without CUDA.
#include "harness/cuda/cuda_device.h"

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
}  // namespace smla
