// SPDX-License-Identifier: Apache-2.0
#include "harness/bench.h"
#include "harness/verbs.h"

namespace smla {

int verb_run(int argc, char** argv) {
  Options options;
  if (!parse_flags("check, then bench: both reports", kChoosing | kChecking | kTiming | kRunning, options, argc, argv)) return 0;
  const Job job(options);
  const SweepResult checked = sweep_accuracy(job, true);
  int status = checked.exit_status();
  if (checked.signal == 0 && !checked.passed.empty()) {
    const int timed = bench_pairs(job, checked.passed).exit_status();
    if (timed > 128 || status == 0) status = timed;
  }
  print_tail(checked, job);
  return status;
}

}  // namespace smla
