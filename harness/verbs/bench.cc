// SPDX-License-Identifier: Apache-2.0
#include "harness/bench.h"

#include "harness/cards.h"
#include "harness/google_benchmark.h"
#include "harness/verbs/verbs.h"
#include "reports/run_files.h"

namespace smla {
namespace {

int bench_on(const Options& options) {
  const Job job(options);
  const SweepResult checked = sweep_accuracy(job, false);
  if (checked.exit_status() != 0) return print_tail(checked, job), checked.exit_status();
  const BenchResult timed = bench_pairs(job, checked.passed);
  write_run_files(job.folder, {job.run.run_id, timed.tally.planned, checked.unexpected, job.start.command, checked.wall_s + timed.wall_s, true});
  return timed.exit_status();
}

}  // namespace

int verb_bench(int argc, char** argv) {
  Options options;
  options.checks = "none";
  if (!parse_flags("throughput of kernels that passed the same case first", kChecking | kTiming | kRunning | kResuming, options, argc, argv))
    return 0;
  refuse_bench_flags(options);
  leave_stdout_to_theirs(options);
  cards_must_be_here(options);
  return on_each_card(options, bench_on);
}

}  // namespace smla
