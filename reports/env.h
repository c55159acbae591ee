// SPDX-License-Identifier: Apache-2.0
// Where and by what a run was made: the columns that every row begins with, and env.json.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace smla {

/// This program.
struct BuildInfo {
  std::string tool_version, git_commit;  // commit: 40 hex digits; "" outside a git checkout
  std::optional<bool> git_dirty;         // tracked files changed since that commit, when this program was built
  std::string compiler, build_type, flags;
};
const BuildInfo& build_info();

/// This machine, without its accelerators.
struct Machine {
  std::string host, os, kernel, cpu_model, governor;  // governor: cpufreq's of CPU 0, "" if there is none
  int cpus = 0;                                       // that this process may use
  long long memory_bytes = 0;
};
Machine machine();

/// ISO 8601, UTC, seconds: "2026-01-02T03:04:05Z".
std::string utc_now();

/// env.json: build, machine, versions of the libraries built in. The harness adds devices and the command line before it writes it.
nlohmann::ordered_json environment();

}  // namespace smla
