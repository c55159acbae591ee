// SPDX-License-Identifier: Apache-2.0
// smla gate: a run against a reviewed baseline; the exit status is the answer.
#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "harness/exit_status.h"
#include "harness/options.h"
#include "harness/progress.h"
#include "harness/verbs.h"
#include "reports/gate.h"
#include "reports/text.h"

namespace smla {
namespace {

namespace fs = std::filesystem;

/// The run's reports: `out` itself, or its folder of the baseline's architecture.
std::string run_folder(const std::string& out, const std::string& baseline) {
  if (fs::exists(fs::path(out) / file_name<AccuracyRow>())) return out;
  fs::path arch = fs::path(baseline).filename();
  if (arch.empty()) arch = fs::path(baseline).parent_path().filename();  // written with a slash at the end
  return (fs::path(out) / arch).string();
}

template <class Row>
std::string file_in(const std::string& folder) {
  return fmt::format("{}/{}", folder, file_name<Row>());
}

}  // namespace

int verb_gate(int argc, char** argv) {
  GateFlags flags;
  if (!parse_flags(flags, argc, argv)) return kAllGreen;
  const std::string folder = run_folder(flags.out, flags.baseline);
  const std::string beside = flags.baseline + "/known_issues.toml";
  std::vector<KnownIssue> issues;
  if (!flags.known_issues.empty()) issues = read_known_issues(flags.known_issues);
  else if (fs::exists(beside)) issues = read_known_issues(beside);

  if (flags.update_baseline) {
    update_baseline(folder, flags.baseline, issues);
    fmt::print("{} now holds the rows of {}: review and commit it\n", flags.baseline, folder);
    return kAllGreen;
  }

  const auto baseline = read_report<AccuracyRow>(file_in<AccuracyRow>(flags.baseline)), run = read_report<AccuracyRow>(file_in<AccuracyRow>(folder));
  if (run.rows.empty()) throw NothingMatched(fmt::format("gate: {} has no rows", run.origin));
  std::optional<TimedSet> baseline_times, run_times;
  if (!flags.accuracy_only && fs::exists(file_in<ThroughputRow>(flags.baseline))) {
    baseline_times = read_timed(flags.baseline);
    run_times = read_timed(folder);
  }
  for (const std::optional<TimedSet>* set : {&baseline_times, &run_times})
    if (*set)
      for (const std::string& text : (*set)->notes) tell(text);
  const GateResult result = gate({&baseline, &run, baseline_times ? &*baseline_times : nullptr, run_times ? &*run_times : nullptr, issues},
                                 {.max_loss = flags.max_loss, .noise_factor = flags.noise_factor});
  const std::string text = gate_markdown(result);
  fmt::print("{}", text);
  if (!flags.markdown.empty()) write_text_file(flags.markdown, text);
  if (!flags.junit.empty()) write_text_file(flags.junit, junit_xml(gate_junit(result)));
  return result.exit_status();
}

}  // namespace smla
