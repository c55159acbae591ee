// SPDX-License-Identifier: Apache-2.0
// The table on stdout: one line a (case, kernel), and one a timed row.
#pragma once
#include <string>

#include "harness/judge_case.h"
#include "reports/record.h"

namespace smla {

std::string throughput_header();
std::string throughput_line(const ThroughputRow& row);

std::string accuracy_header();
std::string accuracy_line(const PlannedCase& planned, const PairResult& pair);

/// What stands behind the line of a needle case.
std::string coverage_text(const NeedleCoverage& coverage);
/// The status, in colour where stdout is a terminal.
std::string status_text(Status status, int width);

}  // namespace smla
