// SPDX-License-Identifier: Apache-2.0
#include "harness/run_info.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>

#include "harness/cpu_peaks.h"

namespace smla {
Common describe_run(const Options&) {
  Common run;
  const std::time_t now = std::time(nullptr);
  run.started_utc = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  run.run_id = fmt::format("{:%Y%m%dT%H%M%S}-{}", fmt::gmtime(now), getpid());
  run.tool_version = "0.1.0";
  run.arch = "cpu_x86_64";
  run.device_name = cpu_model();
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) == 0) run.host = host;
  return run;
}

std::string report_folder(const Options& options, const std::string& arch) {
  const std::filesystem::path folder = std::filesystem::path(options.out) / arch;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw UsageError(fmt::format("--out {}: cannot make {}: {}", options.out, folder.string(), error.message()));
  return folder.string();
}

}  // namespace smla
