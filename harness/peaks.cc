// SPDX-License-Identifier: Apache-2.0
#include "harness/peaks.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cpu_peaks.h"
#include "harness/cuda/gpu_probe.h"
#include "reports/record.h"
#include "reports/table.h"
#include "reports/text.h"

namespace smla {
namespace {

Peaks cpu_peaks(int threads) {
  const CpuPeaks cpu = measure_cpu_peaks(threads);
  const std::string best = fmt::format("best of 5, {} threads, 256 MiB", cpu.threads);
  Peaks peaks{{{"fma_fp32_tflops", cpu.fma_tflops, fmt::format("12 chains of 8 lanes a thread, best of 5, {} threads", cpu.threads)},
               {"read_gbps", cpu.read_gbps, "32-byte loads in order, " + best},
               {"copy_gbps", cpu.copy_gbps, "memcpy, bytes read plus written, " + best}},
              "fp32 fma and streaming read, measured in this run"};
  for (size_t format = 0; format < std::size(kGatherRow_bytes); ++format)
    peaks.all.push_back({fmt::format("gather_{}_gbps", kGatherRow_bytes[format]), cpu.gather_gbps[format], "whole rows at random places, " + best});
  return peaks;
}

}  // namespace

double Peaks::operator[](const std::string& name) const {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Peak& peak) { return peak.name == name; });
  return found == all.end() ? 0 : found->value;
}

double Peaks::matrix_tflops() const {
  const double matrix = (*this)["matrix_bf16_tflops"];
  return matrix > 0 ? matrix : (*this)["fma_fp32_tflops"];
}

Peaks measure_peaks(const std::string& device, int ordinal, int threads) {
  if (device != "cuda") return cpu_peaks(threads);
  Peaks peaks{probe_gpu_peaks(ordinal), ""};
  for (const Peak& peak : peaks.all)
    if (peak.name == "matrix_bf16_tflops" || peak.name == "read_gbps")
      (peaks.source += peaks.source.empty() ? "" : "; ") += peak.name + ": " + peak.how;
  if (peaks.source.empty()) peaks.source = "not measured";
  return peaks;
}

void write_peaks(const std::string& folder, const Common& run, const Peaks& peaks) {
  Table table{{"run_id", "measured_utc", "arch", "device_name", "gpu_uuid", "power_limit_w", "driver_version", "name", "value", "how"}, {}};
  for (const Peak& peak : peaks.all)
    table.add({run.run_id, run.started_utc, run.arch, run.device_name, run.gpu_uuid,
               run.power_limit_w ? fmt::format("{:.9g}", *run.power_limit_w) : "", run.driver_version, peak.name, fmt::format("{:.9g}", peak.value),
               peak.how});
  write_text_file(folder + "/peaks.csv", table.csv());
}

Roof roof_of(const Peaks& peaks, int64_t flops, int64_t bytes, bool cold, double matrix_factor) {
  const double matrix = peaks.matrix_tflops() * matrix_factor, read = peaks.read_gbps();
  const double compute_us = matrix > 0 ? static_cast<double>(flops) / matrix / 1e6 : 0;
  const double memory_us = cold && read > 0 ? static_cast<double>(bytes) / read / 1e3 : 0;
  if (compute_us == 0 && memory_us == 0) return {};
  return compute_us >= memory_us ? Roof{compute_us, "compute"} : Roof{memory_us, "memory"};
}

}  // namespace smla
