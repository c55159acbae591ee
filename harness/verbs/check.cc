// SPDX-License-Identifier: Apache-2.0
#include "harness/cards.h"
#include "harness/sweep.h"
#include "harness/verbs/verbs.h"
#include "reports/run_files.h"

namespace smla {
namespace {

int check_on(const Options& options) {
  const Job job(options);
  const SweepResult result = sweep_accuracy(job, true);
  write_run_files(job.folder, {job.run.run_id, result.tally.planned, result.unexpected, job.start.command, result.wall_s});
  print_tail(result, job);
  return result.exit_status();
}

}  // namespace

int verb_check(int argc, char** argv) {
  Options options;
  if (!parse_flags("accuracy: every kernel against the fp64 oracle, and the checks beside it", kChecking | kRunning | kResuming, options, argc, argv))
    return 0;
  cards_must_be_here(options);
  return on_each_card(options, check_on);
}

}  // namespace smla
