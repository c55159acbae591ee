// SPDX-License-Identifier: Apache-2.0
// May this build replace the reviewed one? A run against a baseline, rule by rule. Results are judged by the oracle alone; the baseline says what
// must not be lost.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reports/compare.h"
#include "reports/junit.h"
#include "reports/known_issues.h"
#include "reports/record.h"

namespace smla {

struct GateOptions {
  double max_loss = 0.03;       // slower by more than this fraction is red ...
  double noise_factor = 3;      // ... if it is also more than this many times the pair's A/A noise
  double pooled_growth = 1.05;  // z_rms_pooled over the baseline's: reported, never red
  double alpha = 0.05;
};

/// The rules, in the order in which they are reported.
enum class Rule : int32_t {
  not_passed,          // a red status; the oracle decides, not the baseline
  verdict_lost,        // passed in the baseline, and now declined, skipped or not there
  contract_changed,    // declares more rounding, a weaker promise or another convention than in the baseline
  check_lost,          // a check that was made and held in the baseline was not made, or fewer rows were judged
  outputs_unverified,  // the timed outputs are not the checked ones
  impossible_fast,     // faster than the machine can be
  slower,              // beyond max_loss and noise
  time_lost,           // timed in the baseline, not now
  known_issue_passes,  // remove it from the list
  ambiguous,           // could not be told: measure again
  pooled_grew,
  unused_issue,
};
template <>
struct Names<Rule> {
  static constexpr std::string_view kKind = "Rule";
  static constexpr std::string_view kAll[] = {"not_passed",         "verdict_lost",    "contract_changed", "check_lost",
                                              "outputs_unverified", "impossible_fast", "slower",           "time_lost",
                                              "known_issue_passes", "ambiguous",       "pooled_grew",      "unused_issue"};
};

struct Finding {
  enum class Level { red, known, report };  // known: red but for an entry of known_issues.toml
  Rule rule = Rule::not_passed;
  Level level = Level::red;
  std::string case_line, kernel, text, repro;
  double ratio = 0;  // ambiguous: time over the baseline's
};

/// Whether the loss is beyond what is allowed and beyond noise: red. The comparison's margin is max_loss.
bool loses(const Comparison& comparison, const GateOptions& options);

struct GateResult {
  std::vector<Finding> findings;
  std::vector<GeomeanRow> means;                                  // time over the baseline's
  int64_t pairs = 0, pairs_passed = 0, pairs_fresh = 0;           // fresh: not in the baseline
  bool timed = false;                                             // whether times were gated
  std::string intervals;                                          // what they are, if so
  int64_t times = 0, times_same_or_faster = 0, times_slower = 0;  // compared; surely within max_loss; beyond it. The rest is undecided
  double detectable_median = 0, detectable_max = 0;  // least slowdown, as a fraction, that could have been seen (80 % power), over the compared times
  int exit_status() const;                           // 1 if a correctness rule is red, else 2 if a throughput rule is, else 0
};

/// Any pointer to a timed set may be null: then times are not gated. Throws UsageError where the two sides are of another arch, device, power limit
/// or ECC, and where the baseline holds no passed pair, or no time: a gate that nothing can fail is none.
struct GateInput {
  const Report<AccuracyRow>* baseline = nullptr;
  const Report<AccuracyRow>* run = nullptr;
  const TimedSet* baseline_times = nullptr;
  const TimedSet* run_times = nullptr;
  std::span<const KnownIssue> issues;
};
GateResult gate(const GateInput& input, const GateOptions& options = {});

/// What `declared` promises less, or otherwise, than `baseline` does, in words; "" where nothing. Both as in the column `declared`.
std::string contract_change(const std::string& baseline, const std::string& declared);

/// Fit for a pull request: the verdict first, red ones with their reproducers, then the rest.
std::string gate_markdown(const GateResult& result);
std::vector<JunitCase> gate_junit(const GateResult& result);

/// Rows of the run take the place of those of the same pair in the baseline's accuracy.csv, throughput.csv and samples.csv; rows of pairs that it
/// does not have stay. Throws UsageError, and changes nothing, if a row of the run is red and no known issue.
/// Rows of another arch are refused, too. The run may stand in several folders (report_folders.h).
void update_baseline(const std::vector<std::string>& run_folders, const std::string& baseline_folder, std::span<const KnownIssue> issues);

}  // namespace smla
