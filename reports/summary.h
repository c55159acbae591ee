// SPDX-License-Identifier: Apache-2.0
// summary.md: what a person reads first. It leads with passed / planned, and what is not green comes with the line that reruns it.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "reports/record.h"

namespace smla {

struct SummaryInput {
  int64_t planned = 0;  // pairs of case and kernel that were to be checked; more than there are rows if the run was interrupted
  std::span<const AccuracyRow> accuracy;
  std::span<const ThroughputRow> throughput;
  std::map<std::string, std::string> unexpected;  // pair_key -> "expected ...": red whatever the status
  std::string command;                            // how the run was called
  double wall_s = 0;
  bool only_timed = false;  // pairs were judged beforehand and have no rows of their own: `planned` counts rows that were to be timed
};

std::string summary_markdown(const SummaryInput& input);

}  // namespace smla
