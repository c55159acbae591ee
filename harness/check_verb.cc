// SPDX-License-Identifier: Apache-2.0
#include "harness/interrupt.h"
#include "harness/run_info.h"
#include "harness/session.h"
#include "harness/sweep.h"
#include "harness/verbs.h"

namespace smla {

int verb_check(int argc, char** argv) {
  Options options;
  if (!parse_flags("accuracy: every kernel against the fp64 oracle, and the checks beside it", kChoosing | kChecking | kRunning, options, argc, argv))
    return 0;
  parse_checks(options.checks);
  const std::vector<PlannedCase> plan = plan_cases(options);
  Session session(options);
  const std::vector<Candidate> kernels = session.chosen();
  const Common run = describe_run();
  const std::string folder = report_folder(options, run.arch);
  watch_interrupts();
  const SweepResult result = sweep_accuracy(options, run, plan, kernels, folder);
  print_tail(result, options, folder);
  return result.exit_status();
}

}  // namespace smla
