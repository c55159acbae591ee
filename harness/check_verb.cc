// SPDX-License-Identifier: Apache-2.0
#include "harness/final_reports.h"
#include "harness/verbs.h"

namespace smla {

int verb_check(int argc, char** argv) {
  Options options;
  if (!parse_flags("accuracy: every kernel against the fp64 oracle, and the checks beside it", kChoosing | kChecking | kRunning, options, argc, argv))
    return 0;
  const Job job(options);
  const SweepResult result = sweep_accuracy(job, true);
  write_final_reports(job, result, result.wall_s);
  print_tail(result, job);
  return result.exit_status();
}

}  // namespace smla
