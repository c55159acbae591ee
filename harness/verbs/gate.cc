// SPDX-License-Identifier: Apache-2.0
// smla gate: a run against a reviewed baseline; the exit status is the answer.
#include "reports/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "harness/exit_status.h"
#include "harness/progress.h"
#include "harness/verbs/verb_flags.h"
#include "harness/verbs/verbs.h"
#include "reports/report_folders.h"
#include "reports/text.h"

namespace smla {
namespace {

/// "sm_90" of reports/baselines/sm_90, with or without a slash at the end.
std::string last_name(const std::filesystem::path& path) { return (path.has_filename() ? path : path.parent_path()).filename(); }

}  // namespace

int verb_gate(int argc, char** argv) {
  GateFlags flags;
  if (!parse_flags(flags, argc, argv)) return kAllGreen;
  const std::string_view accuracy_csv = file_name<AccuracyRow>(), throughput_csv = file_name<ThroughputRow>();
  std::vector<std::string> baseline_folders{flags.baseline};
  Report<AccuracyRow> baseline;
  if (!flags.update_baseline) {
    baseline_folders = report_folders(flags.baseline, accuracy_csv);
    baseline = read_reports<AccuracyRow>(baseline_folders);
  }
  const std::string arch = baseline.rows.empty() ? last_name(baseline_folders[0]) : baseline.rows[0].arch;
  const std::vector<std::string> run_folders = report_folders(flags.out, accuracy_csv, arch);
  const std::string beside = baseline_folders[0] + "/known_issues.toml";
  std::vector<KnownIssue> issues;
  if (!flags.known_issues.empty()) issues = read_known_issues(flags.known_issues);
  else if (std::filesystem::exists(beside)) issues = read_known_issues(beside);

  if (flags.update_baseline) {
    update_baseline(run_folders, flags.baseline, issues);
    fmt::print("{} now holds the rows of {}: review and commit it\n", flags.baseline, fmt::join(run_folders, " and "));
    return kAllGreen;
  }

  const auto run = read_reports<AccuracyRow>(run_folders);
  if (run.rows.empty()) throw NothingMatched(fmt::format("gate: {} has no rows", run.origin));
  std::optional<TimedSet> baseline_times, run_times;
  if (!flags.accuracy_only) {
    const auto is_timed = [&](const std::string& folder) { return std::filesystem::exists(fmt::format("{}/{}", folder, throughput_csv)); };
    if (is_timed(baseline_folders[0])) {
      baseline_times = read_timed(baseline_folders);
      if (std::any_of(run_folders.begin(), run_folders.end(), is_timed)) {
        run_times = read_timed(run_folders);
      } else {
        run_times = make_timed({fmt::format("{}/{}", run_folders[0], throughput_csv), {}, false}, nullptr);
        tell(fmt::format("gate: {} holds no {}: nothing was timed there (--accuracy-only leaves times out)", run_folders[0], throughput_csv));
      }
    } else {
      tell(fmt::format("gate: {} holds no {}: times are not compared", baseline_folders[0], throughput_csv));
    }
  }
  for (const std::optional<TimedSet>* set : {&baseline_times, &run_times})
    if (*set)
      for (const std::string& text : (*set)->notes) tell(text);
  GateOptions options;
  options.max_loss = flags.max_loss;
  options.noise_factor = flags.noise_factor;
  const GateResult result = gate({&baseline, &run, baseline_times ? &*baseline_times : nullptr, run_times ? &*run_times : nullptr, issues}, options);
  const std::string text = gate_markdown(result);
  fmt::print("{}", text);
  if (!flags.markdown.empty()) write_text_file(flags.markdown, text);
  if (!flags.junit.empty()) write_text_file(flags.junit, junit_xml(gate_junit(result)));
  return result.exit_status();
}

}  // namespace smla
