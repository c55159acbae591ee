// SPDX-License-Identifier: Apache-2.0
// What the bring-up needs of a device: checked calls, buffers between canaries, the inputs of a case in device memory.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cases/inputs.h"
#include "kernels/api/smla_kernel.h"

#define SMLA_CHECK(call) ::smla::bringup::check((call), #call, __FILE__, __LINE__)

namespace smla::bringup {

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  printf("%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(status));
  fflush(stdout);
  exit(5);
}

/// Device memory between two canaries of 1024 bytes.
class Buffer {
 public:
  static constexpr size_t kGuard = 1024;
  Buffer() = default;
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    SMLA_CHECK(cudaMalloc(&base_, bytes + 2 * kGuard));
    SMLA_CHECK(cudaMemset(base_, 0xA5, kGuard));
    SMLA_CHECK(cudaMemset(base_ + kGuard + bytes, 0xA5, kGuard));
  }
  Buffer(Buffer&& other) noexcept { *this = static_cast<Buffer&&>(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (base_) cudaFree(base_);
  }
  template <class T = void>
  T* get() const {
    return base_ ? reinterpret_cast<T*>(base_ + kGuard) : nullptr;
  }
  size_t bytes() const { return bytes_; }
  void fill(int byte) { SMLA_CHECK(cudaMemset(get(), byte, bytes_)); }
  bool guards_ok() const {
    std::vector<unsigned char> guard(kGuard);
    for (const char* at : {base_, base_ + kGuard + bytes_}) {
      SMLA_CHECK(cudaMemcpy(guard.data(), at, kGuard, cudaMemcpyDeviceToHost));
      for (unsigned char c : guard)
        if (c != 0xA5) return false;
    }
    return true;
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> host(bytes_ / sizeof(T));
    SMLA_CHECK(cudaMemcpy(host.data(), get(), host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  template <class T>
  static Buffer of(const std::vector<T>& host) {
    if (host.empty()) return {};
    Buffer buffer(host.size() * sizeof(T));
    SMLA_CHECK(cudaMemcpy(buffer.get(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return buffer;
  }

 private:
  char* base_ = nullptr;
  size_t bytes_ = 0;
};

/// The device fields of a problem, from the current device.
inline void set_device(smla_problem& p) {
  int device = 0;
  cudaDeviceProp properties;
  SMLA_CHECK(cudaGetDevice(&device));
  SMLA_CHECK(cudaGetDeviceProperties(&properties, device));
  p.device_ordinal = device;
  p.device_cc = properties.major * 10 + properties.minor;
  p.sm_count = properties.multiProcessorCount;
  p.smem_optin_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  p.l2_bytes = properties.l2CacheSize;
}

/// Inputs of a case on the device. Unselected slots, gaps and guards hold NaN (0xff bytes).
struct DeviceInputs {
  explicit DeviceInputs(const Inputs& in);
  smla_problem problem;
  Buffer q, kv, indices, topk_length, block_table, seq_lens, sink;
  smla_buffers buffers(void* out, void* lse) const;
};

int check_main(int argc, char** argv);
int time_main(int argc, char** argv);

}  // namespace smla::bringup
