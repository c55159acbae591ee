// SPDX-License-Identifier: Apache-2.0
// What a run was asked, kept in env.json from its first moment, so that another process can go on with it and none goes on with something else.
#pragma once
#include <cstdint>
#include <string>

namespace smla {

/// Two runs whose identities agree ask the same of the same. Text, so that a difference can be told.
struct RunIdentity {
  std::string verb, binary, plugin, suite, cases, kernels, device, flags;
  bool operator==(const RunIdentity&) const = default;
};
/// "another suite: quick then, stress now"; "" where they agree.
std::string difference(const RunIdentity& then, const RunIdentity& now);

struct RunStart {
  std::string run_id, started_utc, command;
  int64_t resumed = 0;  // how often another process went on with it
  RunIdentity identity;
  bool operator==(const RunStart&) const = default;
};

/// Begins a run in `folder`, or goes on with one: env.json is there, and what an earlier run left at its end (summary, junit, and benchmark.json
/// where this one times) is not, so that nobody takes it for this one's.
void begin_run(const std::string& folder, const RunStart& start);

/// What begin_run wrote. Throws UsageError where no run was begun in `folder`.
RunStart read_run_start(const std::string& folder);

}  // namespace smla
