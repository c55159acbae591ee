// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "harness/cards.h"
#include "harness/cuda/gpu_probe.h"
#include "harness/options.h"
#include "harness/peaks.h"
#include "harness/verbs/verbs.h"
#include "reports/env.h"

namespace smla {
namespace {

void print_peaks(const Peaks& peaks) {
  for (const Peak& peak : peaks.all) fmt::print("  {:<24} {:>9.4g}   {}\n", peak.name, peak.value, peak.how);
}

void print_gpu(int ordinal) {
  std::string why;
  const std::optional<GpuInfo> gpu = probe_gpu(ordinal, why);
  if (!gpu) {
    fmt::print("no GPU {}: {}\n", ordinal, why);
    return;
  }
  const auto known = [](double value, const char* unit) { return value > 0 ? fmt::format("{:g} {}", value, unit) : std::string("unknown"); };
  fmt::print("sm_{}  {}  GPU {} {}\n", gpu->cc, gpu->name, ordinal, gpu->uuid);
  fmt::print("  {} SMs, {:.1f} GB, L2 {:.1f} MB, shared memory {} bytes a block, driver {}, CUDA {}, power limit {}, ECC {}\n", gpu->sm_count,
             static_cast<double>(gpu->memory_bytes) / 1e9, static_cast<double>(gpu->l2_bytes) / 1e6, gpu->smem_optin_bytes,
             gpu->driver_version.empty() ? "unknown" : gpu->driver_version, gpu->cuda_version, known(gpu->power_limit_w, "W"),
             gpu->ecc.empty() ? "unknown" : gpu->ecc);
  print_peaks(measure_peaks("cuda", ordinal, 0));
}

}  // namespace

int verb_device(int argc, char** argv) {
  Options options;
  if (!parse_flags("what is here: cores, GPUs, and the peaks measured now", kGpus | kThreads, options, argc, argv)) return 0;
  resolve_cards(options);
  cards_must_be_here(options);
  for (int ordinal : options.gpus.empty() ? std::vector<int>{0} : options.gpus) print_gpu(ordinal);
  fmt::print("cpu_x86_64  {}\n", machine().cpu_model);
  print_peaks(measure_peaks("cpu", 0, options.threads));
  return 0;
}

}  // namespace smla
