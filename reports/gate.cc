// SPDX-License-Identifier: Apache-2.0
#include "reports/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <unordered_map>

#include "reports/outcome.h"
#include "reports/text.h"

namespace smla {
namespace {

constexpr Rule kCorrectness[] = {Rule::not_passed, Rule::verdict_lost,       Rule::contract_changed,
                                 Rule::check_lost, Rule::outputs_unverified, Rule::known_issue_passes};

/// Names of `was` that `now` lacks, both joined by '|'.
std::string checks_lost(const std::string& was, const std::string& now) {
  std::string lost;
  std::istringstream names(was);
  for (std::string name; std::getline(names, name, '|');)
    if (('|' + now + '|').find('|' + name + '|') == std::string::npos) lost += (lost.empty() ? "" : ", ") + name;
  return lost;
}

/// Rows (query token, head) that the oracle answered and the budget covers.
int64_t rows_judged(const AccuracyRow& row) { return row.oracle_rows.value_or(0) - row.rows_unjudged.value_or(0); }

template <class Row>
std::string one_arch(const Report<Row>& report) {
  for (size_t i = 0; i < report.rows.size(); ++i)
    if (report.rows[i].arch != report.rows[0].arch)
      throw UsageError(report.at(i) +
                       fmt::format("column arch: {} among rows of {}: a gate needs one folder an arch", report.rows[i].arch, report.rows[0].arch));
  return report.rows.empty() ? "" : report.rows[0].arch;
}

template <class Row>
void must_hold_something(const Report<Row>& baseline) {
  if (std::none_of(baseline.rows.begin(), baseline.rows.end(), [](const Row& row) { return row.status == Status::pass; }))
    throw UsageError(fmt::format("{}: no row of the baseline passed: nothing could be lost against it", baseline.origin));
}

/// Collects findings; a red one that a known issue covers is no longer red.
struct Ledger {
  std::span<const KnownIssue> issues;
  std::vector<bool> hit;
  std::vector<Finding> findings;

  void red(Rule rule, const Common& row, const std::string& text, const std::string& repro) {
    Finding finding{rule, Finding::Level::red, to_line(row.c), row.kernel, text, repro};
    for (size_t i = 0; i < issues.size(); ++i) {
      if (!issues[i].matches(row)) continue;
      hit[i] = true;
      finding.level = Finding::Level::known;
      finding.text += fmt::format(" [known: {}{}{}]", issues[i].reason, issues[i].link.empty() ? "" : " ", issues[i].link);
      break;
    }
    findings.push_back(std::move(finding));
  }
  void report(Rule rule, const Common& row, const std::string& text, const std::string& repro = "", double ratio = 0) {
    findings.push_back({rule, Finding::Level::report, to_line(row.c), row.kernel, text, repro, ratio});
  }
};

void gate_accuracy(const GateInput& input, const GateOptions& options, Ledger& ledger, GateResult& result) {
  const std::string arch = one_arch(*input.baseline), run_arch = one_arch(*input.run);
  if (!arch.empty() && !run_arch.empty() && arch != run_arch)
    throw UsageError(fmt::format("not comparable: {} is of {} and {} of {}", input.baseline->origin, arch, input.run->origin, run_arch));

  const std::vector<Outcome> before = outcomes(input.baseline->rows), now = outcomes(input.run->rows);
  std::unordered_map<std::string, const Outcome*> old;
  for (const Outcome& outcome : before) old[pair_key(outcome.worst())] = &outcome;
  std::set<std::string> seen;
  for (const Outcome& outcome : now) {
    const AccuracyRow& row = outcome.worst();
    const auto found = old.find(pair_key(row));
    seen.insert(pair_key(row));
    ++result.pairs;
    result.pairs_passed += row.status == Status::pass;
    result.pairs_fresh += found == old.end();
    if (is_red(row.status)) ledger.red(Rule::not_passed, row, fmt::format("{}: {}", name_of(row.status), row.detail), row.repro);
    if (found == old.end() || found->second->status() != Status::pass) continue;
    const AccuracyRow& was = found->second->worst();
    if (row.status != Status::pass) {
      if (!is_red(row.status))
        ledger.red(Rule::verdict_lost, row, fmt::format("passed in the baseline, now {}: {}", name_of(row.status), row.detail), row.repro);
      continue;
    }
    if ((found->second->lse && !outcome.lse) || (found->second->out && !outcome.out))
      ledger.red(Rule::verdict_lost, row, fmt::format("passed in the baseline, now without its row of {}", outcome.lse ? "out" : "lse"), row.repro);
    if (const std::string change = contract_change(was.declared, row.declared); !change.empty())
      ledger.red(Rule::contract_changed, row, change, row.repro);
    if (const std::string lost = checks_lost(was.checks_run, row.checks_run); !lost.empty())
      ledger.red(Rule::check_lost, row, fmt::format("made in the baseline and not made now: {}", lost), row.repro);
    if (const int64_t then = rows_judged(was), rows = rows_judged(row); rows < then)
      ledger.red(Rule::check_lost, row, fmt::format("{} rows judged by the oracle, in the baseline {}", rows, then), row.repro);
    if (was.z_rms_pooled && row.z_rms_pooled && *row.z_rms_pooled > options.pooled_growth * *was.z_rms_pooled)
      ledger.report(Rule::pooled_grew, row, fmt::format("z_rms_pooled {:.3g}, in the baseline {:.3g}", *row.z_rms_pooled, *was.z_rms_pooled));
  }
  for (const Outcome& outcome : before)
    if (outcome.status() == Status::pass && !seen.contains(pair_key(outcome.worst())))
      ledger.red(Rule::verdict_lost, outcome.worst(), "passed in the baseline, now not there", outcome.worst().repro);
}

void gate_times(const std::vector<Comparison>& comparisons, const GateOptions& options, Ledger& ledger, GateResult& result) {
  std::vector<double> detectable;
  for (const Comparison& c : comparisons) {
    const ThroughputRow& row = c.any();
    const std::string where = fmt::format("{} {}", row.timing, row.cache);
    if (c.b != nullptr && c.b->status == Status::impossible_fast) {
      ledger.red(Rule::impossible_fast, row, fmt::format("{}: {}", where, c.b->detail), row.repro);
      continue;
    }
    if (c.b != nullptr && is_red(c.b->status) && c.verdict != Verdict::missing) {
      ledger.red(Rule::not_passed, row, fmt::format("{}: {} while timed: {}", where, name_of(c.b->status), c.b->detail), row.repro);
      continue;
    }
    if (c.b != nullptr && c.b->status == Status::pass && c.b->outputs_verified == false)
      ledger.red(Rule::outputs_unverified, row, fmt::format("{}: timed calls answered other bits than the checked one", where), row.repro);
    if (c.verdict == Verdict::missing)
      ledger.red(Rule::time_lost, row, fmt::format("{}: timed in the baseline, now not there. {}", where, c.note), row.repro);
    if (!c.ratio) continue;
    ++result.times;
    if (c.detectable) detectable.push_back(*c.detectable);
    std::string figures =
        c.ratio_lo ? fmt::format("{}: {:.5g} µs, {:.4g} of the baseline's {:.5g} µs, {:.4g} % interval {:.4g} to {:.4g} from {}", where,
                                 *c.b->time_us_median, *c.ratio, *c.a->time_us_median, 100 * *c.level, *c.ratio_lo, *c.ratio_hi, c.interval_from)
                   : fmt::format("{}: {:.5g} µs, {:.4g} of the baseline's", where, *c.b->time_us_median, *c.ratio);
    if (!c.note.empty()) figures += "; " + c.note;
    if (loses(c, options)) ++result.times_slower, ledger.red(Rule::slower, row, figures, row.repro);
    else if (c.ratio_hi && *c.ratio_hi * c.seems_faster <= 1 + options.max_loss) ++result.times_same_or_faster;
    else ledger.report(Rule::ambiguous, row, figures, row.repro, *c.ratio);
  }
  if (detectable.empty()) return;
  result.detectable_median = median(detectable);
  result.detectable_max = *std::max_element(detectable.begin(), detectable.end());
}

void judge_issues(const GateInput& input, Ledger& ledger) {
  for (size_t i = 0; i < input.issues.size(); ++i) {
    if (ledger.hit[i]) continue;
    const KnownIssue& issue = input.issues[i];
    const auto matches = [&](const Common& row) { return issue.matches(row); };
    const bool used = (input.run != nullptr && std::any_of(input.run->rows.begin(), input.run->rows.end(), matches)) ||
                      (input.run_times != nullptr && std::any_of(input.run_times->report.rows.begin(), input.run_times->report.rows.end(), matches));
    Finding finding{used ? Rule::known_issue_passes : Rule::unused_issue,
                    used ? Finding::Level::red : Finding::Level::report,
                    issue.case_filter.pattern(),
                    issue.kernel,
                    "",
                    ""};
    finding.text =
        fmt::format("{}: \"{}\" {}", issue.origin, issue.reason, used ? "passes now: remove it from the list" : "matches nothing that was run");
    ledger.findings.push_back(std::move(finding));
  }
}

/// What each key of a contract may say, from the tightest to the loosest; the first is what is meant where the key is left out.
const std::map<std::string, std::vector<std::string>>& looseness() {
  static const std::vector<std::string> types{"exact", "fp32", "fp16", "bf16", "e4m3"};
  static const std::map<std::string, std::vector<std::string>> table{{"q", types},
                                                                     {"k", types},
                                                                     {"v", types},
                                                                     {"p", types},
                                                                     {"part", {"fp32", "fp16", "bf16", "e4m3"}},
                                                                     {"acc", {"fp32", "fp22"}},
                                                                     {"row_sum", {"exact", "rounded"}},
                                                                     {"p_max", {"one", "any"}},
                                                                     {"lse_dtype", {"f32", "bf16", "none"}},
                                                                     {"invalid_index", {"any_outside", "negative", "minus_one"}},
                                                                     {"padding", {"anywhere", "tail_only"}},
                                                                     {"duplicates", {"counted", "undefined"}}};
  return table;
}

std::map<std::string, std::string> words(const std::string& declared) {
  std::map<std::string, std::string> all;
  for (size_t begin = 0; begin < declared.size();) {
    const size_t end = std::min(declared.find('|', begin), declared.size());
    const std::string word = declared.substr(begin, end - begin);
    const size_t equals = std::min(word.find('='), word.size());
    all[word.substr(0, equals)] = equals < word.size() ? word.substr(equals + 1) : "";
    begin = end + 1;
  }
  return all;
}

template <class Row>
std::string file_text(const std::vector<Row>& rows) {
  std::string text = csv_line(header<Row>());
  for (Row row : rows) {
    row.schema_version = kSchemaVersion;  // an older row is widened
    text += csv_line(to_cells(row));
  }
  return text;
}

/// Rows of `before` whose key `now` does not have, then all of `now`.
template <class Row>
std::vector<Row> merged(const std::vector<Row>& before, const std::vector<Row>& now, const std::function<std::string(const Row&)>& key) {
  std::set<std::string> replaced;
  for (const Row& row : now) replaced.insert(key(row));
  std::vector<Row> all;
  for (const Row& row : before)
    if (!replaced.contains(key(row))) all.push_back(row);
  all.insert(all.end(), now.begin(), now.end());
  return all;
}

template <class Row>
std::vector<Row> rows_if_there(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, file_name<Row>());
  return std::filesystem::exists(path) ? read_report<Row>(path).rows : std::vector<Row>();
}

}  // namespace

std::string contract_change(const std::string& baseline, const std::string& declared) {
  const auto was = words(baseline), now = words(declared);
  std::set<std::string> keys;
  for (const auto& all : {was, now})
    for (const auto& [key, value] : all) keys.insert(key);
  std::vector<std::string> changes;
  for (const std::string& key : keys) {
    const auto order = looseness().find(key);
    const auto value = [&](const std::map<std::string, std::string>& from) {
      const auto found = from.find(key);
      return found != from.end() ? found->second : order != looseness().end() ? order->second.front() : "(default)";
    };
    const std::string old_value = value(was), new_value = value(now);
    if (old_value == new_value) continue;
    if (order != looseness().end()) {
      const auto rank = [&](const std::string& v) { return std::find(order->second.begin(), order->second.end(), v) - order->second.begin(); };
      if (rank(new_value) < rank(old_value)) continue;  // tighter
    }
    changes.push_back(fmt::format("{}={} was {}", key, new_value, old_value));
  }
  return changes.empty() ? "" : fmt::format("declares {}", fmt::join(changes, ", "));
}

bool loses(const Comparison& c, const GateOptions& options) {
  return c.verdict == Verdict::slower && *c.ratio - 1 > options.noise_factor * c.log_error;
}

GateResult gate(const GateInput& input, const GateOptions& options) {
  if (input.baseline != nullptr) must_hold_something(*input.baseline);
  if (input.baseline_times != nullptr) must_hold_something(input.baseline_times->report);
  GateResult result;
  Ledger ledger{input.issues, std::vector<bool>(input.issues.size()), {}};
  if (input.baseline != nullptr && input.run != nullptr) gate_accuracy(input, options, ledger, result);
  if (input.baseline_times != nullptr && input.run_times != nullptr) {
    const CompareOptions by{.margin = options.max_loss, .alpha = options.alpha};
    const auto comparisons = compare(*input.baseline_times, *input.run_times, by);
    result.intervals = interval_method(comparisons, by);
    gate_times(comparisons, options, ledger, result);
    result.means = geomeans(comparisons);
    result.timed = true;
  }
  judge_issues(input, ledger);
  std::stable_sort(ledger.findings.begin(), ledger.findings.end(),
                   [](const Finding& a, const Finding& b) { return std::pair(a.level, a.rule) < std::pair(b.level, b.rule); });
  result.findings = std::move(ledger.findings);
  return result;
}

int GateResult::exit_status() const {
  int status = 0;
  for (const Finding& finding : findings) {
    if (finding.level != Finding::Level::red) continue;
    if (std::find(std::begin(kCorrectness), std::end(kCorrectness), finding.rule) != std::end(kCorrectness)) return 1;
    status = 2;
  }
  return status;
}

std::string gate_markdown(const GateResult& result) {
  static constexpr const char* kVerdicts[] = {"green", "red: correctness", "red: throughput"};
  std::string text = fmt::format("# Gate {}\n\n{} / {} pairs passed ({} not in the baseline).\n", kVerdicts[result.exit_status()],
                                 result.pairs_passed, result.pairs, result.pairs_fresh);
  text += result.timed
              ? fmt::format("{} times compared with the baseline's: {} surely no slower than allowed, {} slower, {} undecided.\n", result.times,
                            result.times_same_or_faster, result.times_slower, result.times - result.times_same_or_faster - result.times_slower)
              : "Times were not compared.\n";
  if (result.detectable_max > 0) {  // 0: no pair has an interval
    text += fmt::format("Slowdowns that would have been seen with 80 % power: {:.1f} % (median of the cases), {:.1f} % (worst case).\n",
                        100 * result.detectable_median, 100 * result.detectable_max);
    text += result.intervals + ".\n";
  }
  // Of times that cannot be told those come first that look slowest; who wants all finds them in the JUnit file.
  static constexpr size_t kMostUndecided = 20;
  std::vector<double> undecided;
  for (const Finding& f : result.findings)
    if (f.rule == Rule::ambiguous) undecided.push_back(f.ratio);
  std::sort(undecided.rbegin(), undecided.rend());
  const double least = undecided.size() > kMostUndecided ? undecided[kMostUndecided - 1] : 0;
  static constexpr const char* kTitles[] = {"Red", "Known issues", "Reported"};
  for (int level = 0; level < 3; ++level) {
    Table table{{"rule", "kernel", "case", "what"}, {}};
    std::string reproducers;
    size_t left_out = 0;
    for (const Finding& f : result.findings) {
      if (static_cast<int>(f.level) != level) continue;
      if (f.rule == Rule::ambiguous && f.ratio < least) {
        ++left_out;
        continue;
      }
      table.add({std::string(name_of(f.rule)), f.kernel, f.case_line, f.text});
      if (level == 0 && !f.repro.empty() && reproducers.find(f.repro + "\n") == reproducers.npos) reproducers += clean_text(f.repro) + "\n";
    }
    if (table.rows.empty()) continue;
    text += fmt::format("\n## {}\n\n{}", kTitles[level], table.markdown());
    if (left_out > 0) text += fmt::format("\nAnd {} more `ambiguous`, each below {:.4g} of its baseline's time.\n", left_out, least);
    if (!reproducers.empty()) text += "\n```sh\n" + reproducers + "```\n";
  }
  if (const Table means = geomean_table(result.means); !means.rows.empty()) text += "\n## Time over the baseline's\n\n" + means.markdown();
  return text;
}

std::vector<JunitCase> gate_junit(const GateResult& result) {
  std::vector<JunitCase> cases;
  for (const Finding& f : result.findings) {
    JunitCase c{.suite = fmt::format("gate {}", name_of(f.rule)), .classname = "smla.gate", .name = fmt::format("{} {}", f.kernel, f.case_line)};
    c.type = name_of(f.rule);
    c.message = f.text;
    c.text = f.text + "\n" + f.repro;
    c.ending = f.level == Finding::Level::red     ? JunitCase::Ending::failure
               : f.level == Finding::Level::known ? JunitCase::Ending::skipped
                                                  : JunitCase::Ending::passed;
    cases.push_back(std::move(c));
  }
  JunitCase whole{.suite = "gate", .classname = "smla.gate", .name = "gate"};
  whole.properties = {{"pairs", fmt::format("{}", result.pairs)},
                      {"pairs_passed", fmt::format("{}", result.pairs_passed)},
                      {"times", fmt::format("{}", result.times)},
                      {"times_same_or_faster", fmt::format("{}", result.times_same_or_faster)},
                      {"times_slower", fmt::format("{}", result.times_slower)},
                      {"detectable_max", fmt::format("{:.9g}", result.detectable_max)}};
  if (result.exit_status() != 0) {
    whole.ending = JunitCase::Ending::failure;
    whole.type = "gate";
    whole.message = whole.text = fmt::format("exit status {}", result.exit_status());
  }
  cases.push_back(std::move(whole));
  return cases;
}

void update_baseline(const std::vector<std::string>& run_folders, const std::string& baseline_folder, std::span<const KnownIssue> issues) {
  const auto accuracy = read_reports<AccuracyRow>(run_folders);
  std::vector<ThroughputRow> times;
  std::vector<SampleRow> samples;
  for (const std::string& folder : run_folders) {
    for (ThroughputRow& row : rows_if_there<ThroughputRow>(folder)) times.push_back(std::move(row));
    for (SampleRow& row : rows_if_there<SampleRow>(folder)) samples.push_back(std::move(row));
  }
  const std::vector<AccuracyRow> before = rows_if_there<AccuracyRow>(baseline_folder);
  if (const std::string arch = one_arch(accuracy); !before.empty() && before[0].arch != arch)
    throw UsageError(fmt::format("{}: holds rows of {}, the run is of {}: the baseline was not changed", baseline_folder, before[0].arch, arch));
  const auto refuse_red = [&](Status status, const Common& row) {
    const auto covers = [&](const KnownIssue& issue) { return issue.matches(row); };
    if (is_red(status) && std::none_of(issues.begin(), issues.end(), covers))
      throw UsageError(fmt::format("{}: {} of {} is {}: the baseline was not changed", accuracy.origin, to_line(row.c), row.kernel, name_of(status)));
  };
  for (const Outcome& outcome : outcomes(accuracy.rows)) refuse_red(outcome.status(), outcome.worst());
  for (const ThroughputRow* row : latest(times)) refuse_red(row->status, *row);

  std::vector<std::pair<std::string_view, std::string>> files;
  files.emplace_back(file_name<AccuracyRow>(), file_text(merged<AccuracyRow>(before, accuracy.rows, pair_key)));
  if (!times.empty()) {
    files.emplace_back(file_name<ThroughputRow>(), file_text(merged<ThroughputRow>(rows_if_there<ThroughputRow>(baseline_folder), times, pair_key)));
    const auto pair = [](const SampleRow& row) { return row.case_id + ' ' + row.kernel; };
    const auto all = merged<SampleRow>(rows_if_there<SampleRow>(baseline_folder), samples, pair);
    if (!all.empty()) files.emplace_back(file_name<SampleRow>(), file_text(all));
  }
  std::error_code error;
  std::filesystem::create_directories(baseline_folder, error);
  for (const auto& [name, text] : files) write_text_file(fmt::format("{}/{}", baseline_folder, name), text);
}

}  // namespace smla
