// SPDX-License-Identifier: Apache-2.0
#include "harness/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "harness/checks.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
#include "reports/env.h"

namespace smla {
namespace {

/// "cpu" or "cuda": a report is of one device. Throws CannotStart if the chosen kernels need a GPU and there is none.
std::string device_of(const std::vector<Candidate>& kernels, const Session& session) {
  for (const Candidate& kernel : kernels)
    if (kernel.info.device != kernels.front().info.device)
      throw UsageError(fmt::format("--kernel: '{}' is for {}, '{}' for {}: a report is of one device, choose those of one at a time",
                                   kernels.front().info.name, kernels.front().info.device, kernel.info.name, kernel.info.device));
  const std::string device = kernels.empty() ? "cpu" : kernels.front().info.device;
  if (device == "cuda" && !session.gpu())
    throw CannotStart(
        fmt::format("'{}' needs a GPU: {}. The CPU kernels run everywhere: --kernel 'cpu_*'", kernels.front().info.name, session.why_no_gpu()));
  return device;
}

Common describe_run(const std::string& device, const Session& session) {
  Common run;
  run.started_utc = utc_now();
  for (char c : run.started_utc)
    if (c != '-' && c != ':') run.run_id += c;
  run.run_id += fmt::format("-{}", getpid());
  run.tool_version = build_info().tool_version;
  run.git_commit = build_info().git_commit;
  run.git_dirty = build_info().git_dirty;
  const Machine here = machine();
  run.arch = "cpu_x86_64";
  run.device_name = here.cpu_model;
  run.host = here.host;
  if (device != "cuda") return run;
  const GpuInfo& gpu = *session.gpu();
  run.arch = fmt::format("sm_{}", gpu.cc);
  run.device_name = gpu.name;
  run.gpu_uuid = gpu.uuid;
  run.sm_count = gpu.sm_count;
  if (gpu.power_limit_w > 0) run.power_limit_w = gpu.power_limit_w;
  if (!gpu.ecc.empty()) run.ecc = gpu.ecc == "on";
  run.driver_version = gpu.driver_version;
  run.cuda_version = gpu.cuda_version;
  return run;
}

}  // namespace

std::string report_folder(const Options& options, const std::string& arch) {
  const std::filesystem::path folder = std::filesystem::path(options.out) / arch;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw UsageError(fmt::format("--out {}: cannot make {}: {}", options.out, folder.string(), error.message()));
  return folder.string();
}

Job::Job(const Options& o)
    : options(o),
      checks(parse_checks(o.checks)),
      plan(plan_cases(o)),
      session(o),
      kernels(session.chosen()),
      run(describe_run(device_of(kernels, session), session)),
      folder(report_folder(o, run.arch)) {
  watch_interrupts();
}

}  // namespace smla
