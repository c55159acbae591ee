// SPDX-License-Identifier: Apache-2.0
// What happened, as rows of the reports.
#pragma once
#include <vector>

#include "harness/judge_case.h"
#include "reports/record.h"

namespace smla {

/// One row for out and, where the kernel gives an lse, one for lse. `run`: what every row of this run begins with.
std::vector<AccuracyRow> accuracy_rows(const Common& run, const PlannedCase& planned, const CaseResult& result, const PairResult& pair);

/// The columns that name case and kernel, on top of what every row of this run begins with. `valid_keys`: over all rows of the case.
Common common_of(const Common& run, const PlannedCase& planned, int64_t valid_keys, const std::string& kernel);

}  // namespace smla
