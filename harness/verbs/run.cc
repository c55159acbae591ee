// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/bench.h"
#include "harness/cards.h"
#include "harness/exit_status.h"
#include "harness/google_benchmark.h"
#include "harness/verbs/verbs.h"
#include "reports/run_files.h"

namespace smla {
namespace {

/// Of a suite that tags some of its cases `time`, those; else all.
std::vector<PassedPair> to_be_timed(const Job& job, std::vector<PassedPair> passed) {
  const auto tagged = [](const PlannedCase& planned) { return planned.tagged("time"); };
  if (std::any_of(job.plan.begin(), job.plan.end(), tagged)) std::erase_if(passed, [&](const PassedPair& pair) { return !tagged(pair.planned); });
  return passed;
}

int run_on(const Options& options) {
  const Job job(options);
  const SweepResult checked = sweep_accuracy(job, true);
  int status = checked.exit_status();
  double wall_s = checked.wall_s;
  if (checked.signal == 0) {
    const BenchResult timed = bench_pairs(job, to_be_timed(job, checked.passed));
    wall_s += timed.wall_s;
    const int how = timed.exit_status();
    if (timed.signal != 0 || (status == kAllGreen && how != kNoPass)) status = how;  // what passed is green, timed or not
  }
  write_run_files(job.folder, {job.run.run_id, checked.tally.planned, checked.unexpected, job.start.command, wall_s});
  print_tail(checked, job);
  return status;
}

}  // namespace

int verb_run(int argc, char** argv) {
  Options options;
  if (!parse_flags("check, then bench: both reports", kChecking | kTiming | kRunning | kResuming, options, argc, argv)) return 0;
  refuse_bench_flags(options);
  leave_stdout_to_theirs(options);
  cards_must_be_here(options);
  return on_each_card(options, run_on);
}

}  // namespace smla
