// SPDX-License-Identifier: Apache-2.0
#include "harness/bench.h"
#include "harness/interrupt.h"
#include "harness/run_info.h"
#include "harness/session.h"
#include "harness/verbs.h"

namespace smla {

int verb_run(int argc, char** argv) {
  Options options;
  if (!parse_flags("check, then bench: both reports", kChoosing | kChecking | kTiming | kRunning, options, argc, argv)) return 0;
  parse_checks(options.checks);
  const std::vector<PlannedCase> plan = plan_cases(options);
  Session session(options);
  const std::vector<Candidate> kernels = session.chosen();
  const Common run = describe_run();
  const std::string folder = report_folder(options, run.arch);
  watch_interrupts();
  const SweepResult checked = sweep_accuracy(options, run, plan, kernels, folder);
  int status = checked.exit_status();
  if (checked.signal == 0 && !checked.passed.empty()) {
    const int timed = bench_pairs(options, run, checked.passed, folder).exit_status();
    if (timed > 128 || status == 0) status = timed;
  }
  print_tail(checked, options, folder);
  return status;
}

}  // namespace smla
