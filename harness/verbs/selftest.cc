// SPDX-License-Identifier: Apache-2.0
#include "harness/selftest/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include "harness/cards.h"
#include "harness/cuda/gpu_probe.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
#include "harness/job.h"
#include "harness/progress.h"
#include "harness/rerun.h"
#include "harness/verbs/verb_flags.h"
#include "harness/verbs/verbs.h"
#include "kernels/registry.h"
#include "reports/table.h"
#include "reports/text.h"

namespace smla {
namespace {

std::string fate(const Planted& p) { return p.killed() ? p.killed_by : p.exempt.empty() ? "NOBODY" : "exempt"; }

/// Planted x check: in how many cases each check noticed.
Table matrix(const Selftest& selftest) {
  std::vector<std::string> columns;
  for (const Planted& p : selftest.planted())
    for (const auto& [id, cell] : p.row)
      for (const std::string& name : cell.by)
        if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
  Table table{{"planted", "cases"}, {}};
  table.titles.insert(table.titles.end(), columns.begin(), columns.end());
  for (const Planted& p : selftest.planted()) {
    std::vector<std::string> cells{p.name, fmt::format("{}", p.row.size())};
    for (const std::string& column : columns) {
      const auto count = std::count_if(p.row.begin(), p.row.end(), [&](const auto& cell) {
        return std::find(cell.second.by.begin(), cell.second.by.end(), column) != cell.second.by.end();
      });
      cells.push_back(count == 0 ? "" : fmt::format("{}", count));
    }
    table.add(cells);
  }
  return table;
}

void print_killers(const Selftest& selftest) {
  Table table{{"planted", "noticed by", "after s", "case"}, {}};
  for (const Planted& p : selftest.planted())
    table.add({p.name, fate(p), p.killed() ? fmt::format("{:.1f}", p.killed_at_s) : "", p.killed() ? p.killing_case : p.exempt});
  fmt::print("{}\n", table.text());
}

}  // namespace

int verb_selftest(int argc, char** argv) {
  Options options;
  options.case_timeout_s = 30;  // a kernel that never returns costs this once
  SelftestFlags flags;
  if (!parse_flags(flags, options, argc, argv)) return kAllGreen;
  cards_must_be_here(options);
  std::string why_no_gpu;
  const int ordinal = options.gpus.empty() ? 0 : options.gpus.front();
  const std::optional<GpuInfo> card = probe_gpu(ordinal, why_no_gpu);
  const int gpu = card ? ordinal : -1;
  if (flags.jobs == 0) flags.jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<PlannedCase> plan = plan_cases(options);
  if (flags.rules && options.suites.empty() && options.cases_files.empty() && options.case_lines.empty()) {  // the sample: what exposed something
    std::set<std::string> sample;
    for (const auto& [kernel, line] : known_killers()) sample.insert(line);
    std::erase_if(plan, [&](const PlannedCase& planned) { return sample.count(to_line(planned.c())) == 0; });
  }
  std::vector<Planted> chosen = planted_kernels(options.kernels);
  const auto for_gpu = [](const Planted& p) { return find_kernel(p.name).device != SMLA_DEVICE_CPU; };
  const bool only_gpu = std::all_of(chosen.begin(), chosen.end(), for_gpu);
  if (!card && only_gpu) throw CannotStart(fmt::format("'{}' needs a GPU: {}", chosen.front().name, why_no_gpu));
  if (!card) {
    std::erase_if(chosen, for_gpu);
    fmt::print("without the defects of GPU kernels: {}\n", why_no_gpu);
  }
  Selftest selftest(options, flags.jobs, std::move(plan), std::move(chosen), gpu);
  const std::string folder = report_folder(options, only_gpu ? fmt::format("sm_{}", card->cc) : "cpu_x86_64");
  watch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  const bool full = !flags.quick && !flags.which;

  selftest.hunt(!full);
  print_killers(selftest);
  write_text_file(folder + "/selftest_killers.csv", selftest.killers_csv());
  if (full) {
    write_text_file(folder + "/selftest.csv", selftest.matrix_csv());
    write_text_file(folder + "/selftest_cases.csv", selftest.cases_csv());
    write_text_file(folder + "/selftest.md", matrix(selftest).markdown());
    fmt::print("{}\n", matrix(selftest).text());
  }
  if (full && !interrupted()) {
    write_text_file(folder + "/selftest_rules.csv", selftest.rules().csv());
    fmt::print("{}\n", selftest.rules().text());
  }
  const bool only = flags.which || flags.rules;
  const bool with_comparators = !only && options.kernels.empty();  // a defect of the comparator lets some planted kernel escape, any of all
  if (with_comparators && !interrupted()) {
    selftest.hunt_with_faulty_comparators();
    for (const FaultyComparator& comparator : selftest.comparators())
      fmt::print("comparator {:<20} {}\n", comparator.name,
                 comparator.escapes.empty() ? "NOBODY escapes: not noticed" : fmt::format("noticed: {} escapes", comparator.escapes));
  }
  size_t twins = 0;
  if (full && !only && !interrupted()) {
    for (const auto& group : selftest.alike()) {
      twins += group.size();
      fmt::print("alike in every cell:");
      for (const Planted* p : group) fmt::print(" {}", p->name);
      fmt::print("\n");
    }
    selftest.sweep_healthy(flags.pairs);
  }
  write_text_file(folder + "/selftest_healthy.csv", selftest.healthy_csv());
  const auto count = [](const auto& list, const auto& is) { return std::count_if(list.begin(), list.end(), is); };
  const auto noticed = count(selftest.planted(), [](const Planted& p) { return p.killed(); });
  const auto unnoticed = count(selftest.comparators(), [](const FaultyComparator& comparator) { return comparator.escapes.empty(); });
  const size_t alive = selftest.survivors().size(), alarms = selftest.false_alarms().size(), planted = selftest.planted().size();
  for (const FalseAlarm& alarm : selftest.false_alarms())
    fmt::print("false alarm: {} by {}: {}\n  rerun: {}\n", alarm.kernel, alarm.by, alarm.detail,
               rerun_of(options).line("check", alarm.kernel, parse_line(alarm.line)));
  for (const Planted* p : selftest.survivors()) fmt::print("survives: {} ({})\n", p->name, p->what);
  fmt::print("\nnoticed {} of {} planted defects ({} survive, {} exempt) over {} cases", noticed, planted, alive,
             planted - alive - static_cast<size_t>(noticed), selftest.plan().size());
  if (full && !only) fmt::print("; {} of them alike in every cell", twins);
  if (with_comparators) fmt::print("; comparator defects noticed {} of {}", selftest.comparators().size() - unnoticed, selftest.comparators().size());
  fmt::print("\nfalse alarms {} of {} healthy (kernel, case, seed), {} swept (case, seed); {} pairs mistrusted\n", alarms, selftest.healthy_pairs(),
             selftest.healthy_inputs(), selftest.mistrusted());
  fmt::print("in {}; reports: {}\n", clock_text(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()), folder);
  if (const int signal = interrupted()) {
    fmt::print("interrupted by signal {}: not everything was asked\n", signal);
    return 128 + signal;
  }
  return alive > 0 || alarms > 0 || unnoticed > 0 ? kSelftestFailed : kAllGreen;
}

}  // namespace smla
