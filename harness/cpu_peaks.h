// SPDX-License-Identifier: Apache-2.0
// What this machine's cores can do at best, measured: the roofs that a CPU kernel's time is held against.
#pragma once
#include <cstdint>

namespace smla {

struct CpuPeaks {
  int threads = 0;
  int64_t l3_bytes = 0;        // last level cache as the kernel tells, 0 = unknown
  double fma_tflops = 0;       // fp32 fused multiply-add, 2 FLOP each, all threads
  double read_gbps = 0;        // streaming read of memory, all threads
  double copy_gbps = 0;        // bytes read plus bytes written, all threads
  double gather_gbps[2] = {};  // rows of kGatherRow_bytes at random places of memory, all threads
};
inline constexpr int64_t kGatherRow_bytes[2] = {1152, 656};  // a token of a bf16 cache and of fp8_656
/// Best of several runs of each; about half a second and 256 MiB. threads = 0: all.
CpuPeaks measure_cpu_peaks(int threads = 0);

}  // namespace smla
