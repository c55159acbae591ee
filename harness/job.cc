// SPDX-License-Identifier: Apache-2.0
#include "harness/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "harness/checks.h"
#include "harness/interrupt.h"
#include "reports/env.h"

namespace smla {
namespace {

Common describe_run() {
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
  return run;
}

std::string report_folder(const Options& options, const std::string& arch) {
  const std::filesystem::path folder = std::filesystem::path(options.out) / arch;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw UsageError(fmt::format("--out {}: cannot make {}: {}", options.out, folder.string(), error.message()));
  return folder.string();
}

}  // namespace

Job::Job(const Options& o)
    : options(o),
      checks(parse_checks(o.checks)),
      plan(plan_cases(o)),
      session(o),
      kernels(session.chosen()),
      run(describe_run()),
      folder(report_folder(o, run.arch)) {
  watch_interrupts();
}

}  // namespace smla
