// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "harness/cpu_peaks.h"
#include "harness/options.h"
#include "harness/verbs.h"
#include "reports/env.h"

namespace smla {

int verb_device(int argc, char** argv) {
  Options options;
  if (!parse_flags("what is here: cores, cache, and the peaks measured now", kRunning, options, argc, argv)) return 0;
  const CpuPeaks peaks = measure_cpu_peaks(options.threads);
  fmt::print("cpu_x86_64  {}\n", machine().cpu_model);
  fmt::print("  threads      {}\n  last cache   {:.1f} MB\n", peaks.threads, static_cast<double>(peaks.l3_bytes) / 1e6);
  fmt::print("  fp32 fma     {:.3f} TFLOP/s\n  read         {:.1f} GB/s\n  gather       {:.1f} GB/s (rows of 1152 bytes at random)\n",
             peaks.fma_tflops, peaks.read_gbps, peaks.gather_gbps);
  return 0;
}

}  // namespace smla
