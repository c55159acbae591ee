// SPDX-License-Identifier: Apache-2.0
#include "harness/bench.h"
#include "harness/interrupt.h"
#include "harness/run_info.h"
#include "harness/session.h"
#include "harness/verbs.h"

namespace smla {

int verb_bench(int argc, char** argv) {
  Options options;
  options.checks = "none";
  if (!parse_flags("throughput of kernels that passed the same case first", kChoosing | kChecking | kTiming | kRunning, options, argc, argv))
    return 0;
  parse_checks(options.checks);
  const std::vector<PlannedCase> plan = plan_cases(options);
  Session session(options);
  const std::vector<Candidate> kernels = session.chosen();
  const Common run = describe_run();
  const std::string folder = report_folder(options, run.arch);
  watch_interrupts();
  const SweepResult checked = sweep_accuracy(options, run, plan, kernels, "");
  if (checked.exit_status() != 0) return print_tail(checked, options, ""), checked.exit_status();
  return bench_pairs(options, run, checked.passed, folder).exit_status();
}

}  // namespace smla
