// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>

#include "harness/cuda/gpu_probe.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
#include "harness/job.h"
#include "harness/progress.h"
#include "harness/selftest.h"
#include "harness/verbs.h"
#include "reports/table.h"
#include "reports/text.h"

namespace smla {
namespace {

void print_hunt(const Selftest& selftest, bool which) {
  if (which) {
    for (const Planted& p : selftest.planted()) fmt::print("{:<36} {}\n", p.name, p.killed() ? p.killing_case : "(nothing)");
    return;
  }
  Table table{{"planted", "noticed by", "after s", "case"}, {}};
  for (const Planted& p : selftest.planted())
    table.add({p.name,
               p.killed()         ? p.killed_by
               : p.exempt.empty() ? "NOBODY"
                                  : "exempt",
               p.killed() ? fmt::format("{:.1f}", p.killed_at_s) : "", p.killed() ? p.killing_case : p.exempt});
  fmt::print("{}\n", table.text());
}

}  // namespace

int verb_selftest(int argc, char** argv) {
  Options options;
  options.case_timeout_s = 10;  // cases are small; a kernel that never returns costs this once
  SelftestFlags flags;
  if (!parse_flags(flags, options, argc, argv)) return kAllGreen;
  std::string why_no_gpu;
  const int ordinal = options.gpus.empty() ? 0 : options.gpus.front();
  const int gpu = probe_gpu(ordinal, why_no_gpu) ? ordinal : -1;
  if (gpu < 0) fmt::print("without the defects of GPU kernels: {}\n", why_no_gpu);
  Selftest selftest(options, plan_cases(options), planted_kernels(options.kernels, gpu >= 0), gpu);
  const std::string folder = report_folder(options, "cpu_x86_64");
  watch_interrupts();
  const auto start = std::chrono::steady_clock::now();

  selftest.hunt(flags.quick || flags.which);
  print_hunt(selftest, flags.which);
  write_text_file(folder + "/selftest.csv", selftest.matrix_csv());
  if (!flags.which && !interrupted()) {
    selftest.hunt_with_faulty_comparators();
    for (const auto& [name, who] : selftest.comparators())
      fmt::print("comparator {:<20} {}\n", name, who.empty() ? "NOBODY noticed" : fmt::format("noticed: {} escapes", who));
  }
  if (!flags.quick && !flags.which && !interrupted()) {
    for (const auto& group : selftest.alike()) {
      fmt::print("alike in every cell:");
      for (const Planted* p : group) fmt::print(" {}", p->name);
      fmt::print("\n");
    }
    selftest.sweep_healthy(flags.pairs);
  }
  write_text_file(folder + "/selftest_healthy.csv", selftest.healthy_csv());
  if (const int signal = interrupted()) return 128 + signal;

  int64_t exempt = 0, unnoticed = 0;
  for (const Planted& p : selftest.planted()) exempt += !p.killed() && !p.exempt.empty();
  for (const auto& comparator : selftest.comparators()) unnoticed += comparator.second.empty();
  for (const FalseAlarm& alarm : selftest.false_alarms())
    fmt::print("false alarm: {} by {}: {}\n  smla check --kernel {} --case {}\n", alarm.kernel, alarm.by, alarm.detail, alarm.kernel,
               shell_quote(alarm.line));
  for (const Planted* p : selftest.survivors()) fmt::print("survives: {} ({})\n", p->name, p->what);
  const size_t planted = selftest.planted().size(), alive = selftest.survivors().size(), alarms = selftest.false_alarms().size();
  fmt::print("\nnoticed {} of {} planted defects ({} survive, {} exempt) over {} cases; comparator defects noticed {} of {}\n",
             planted - alive - static_cast<size_t>(exempt), planted, alive, exempt, selftest.plan().size(),
             static_cast<int64_t>(selftest.comparators().size()) - unnoticed, selftest.comparators().size());
  fmt::print("false alarms {} of {} healthy (kernel, case, seed), {} swept (case, seed); {} pairs mistrusted\n", alarms, selftest.healthy_pairs(),
             selftest.healthy_inputs(), selftest.mistrusted());
  fmt::print("in {}; reports: {}\n", clock_text(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()), folder);
  return alive > 0 || alarms > 0 || unnoticed > 0 ? kSelftestFailed : kAllGreen;
}

}  // namespace smla
