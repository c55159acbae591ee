// SPDX-License-Identifier: Apache-2.0
// What is written once at the end of a run, from the rows that are in the files: junit.xml, summary.md and env.json.
#pragma once
#include "harness/bench.h"
#include "harness/job.h"
#include "harness/sweep.h"

namespace smla {

/// Also after an interruption: then the summary says how much of the plan is there.
void write_final_reports(const Job& job, const SweepResult& checked, double wall_s);

}  // namespace smla
