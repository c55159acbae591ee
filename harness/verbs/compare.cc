// SPDX-License-Identifier: Apache-2.0
// smla compare: two reports, or two kernels of one report, side by side.
#include "reports/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "harness/exit_status.h"
#include "harness/progress.h"
#include "harness/verbs/verb_flags.h"
#include "harness/verbs/verbs.h"
#include "reports/report_folders.h"
#include "reports/text.h"

namespace smla {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& word) { return word.find('/') != word.npos || word.ends_with(".csv") || fs::exists(word); }

TimedSet read_report_of(const std::string& path) {
  return fs::is_directory(path) ? read_timed(report_folders(path, file_name<ThroughputRow>())) : read_timed(path);
}

std::string verdict_counts(const std::vector<Comparison>& comparisons) {
  std::array<int, std::size(Names<Verdict>::kAll)> counts{};
  for (const Comparison& c : comparisons) ++counts[static_cast<size_t>(c.verdict)];
  std::string text;
  for (size_t v = 0; v < counts.size(); ++v)
    if (counts[v] > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[v], Names<Verdict>::kAll[v]);
  return text;
}

}  // namespace

int verb_compare(int argc, char** argv) {
  CompareFlags flags;
  if (!parse_flags(flags, argc, argv)) return kAllGreen;
  const bool kernels = !is_path(flags.a);
  if (kernels != !is_path(flags.b)) throw UsageError(fmt::format("compare: {} and {}: want two reports, or two kernels", flags.a, flags.b));
  if (!kernels && flags.in_given) throw UsageError("compare: --in is where two kernels are looked up, and these are two reports");
  TimedSet a, b;
  if (kernels) {
    const TimedSet both = read_report_of(flags.in);
    a = only_kernel(both, flags.a);
    b = only_kernel(both, flags.b);
  } else {
    a = read_report_of(flags.a);
    b = read_report_of(flags.b);
  }
  for (const TimedSet* set : {&a, &b})
    for (const std::string& text : set->notes) tell(text);
  const CompareOptions options{.margin = flags.margin, .any_kernel = kernels};
  const auto comparisons = compare(a, b, options);
  if (std::none_of(comparisons.begin(), comparisons.end(), [](const Comparison& c) { return c.ratio.has_value(); }))
    throw NothingMatched(fmt::format("compare: {} and {} have no timed pair in common (case, {}timing, cache): {} and {} rows", flags.a, flags.b,
                                     kernels ? "" : "kernel, ", a.report.rows.size(), b.report.rows.size()));
  const Table pairs = comparison_table(comparisons), means = geomean_table(geomeans(comparisons)), best = best_table(best_kernels(b));
  const std::string counts = verdict_counts(comparisons), method = interval_method(comparisons, options);
  if (flags.csv == "-") fmt::print("{}", pairs.csv());
  else {
    fmt::print("a = {}\nb = {}\nratio = time of b over time of a, beyond a margin of {:g} %\n{}\n\n{}\n{}\n\n{}\n", flags.a, flags.b,
               100 * options.margin, method, pairs.text(), counts, means.text());
    if (!kernels) fmt::print("best kernels of b\n{}", best.text());
    if (!flags.csv.empty()) write_text_file(flags.csv, pairs.csv());
  }
  if (!flags.markdown.empty())
    write_text_file(flags.markdown,
                    fmt::format("# {} against {}\n\n{}\n\n{}\n\n{}\n## Geometric means\n\n{}{}", markdown_cell(flags.b), markdown_cell(flags.a),
                                counts, method, pairs.markdown(), means.markdown(), kernels ? "" : "\n## Best kernels\n\n" + best.markdown()));
  return kAllGreen;
}

}  // namespace smla
