// SPDX-License-Identifier: Apache-2.0
// smla compare: two reports, or two kernels of one report, side by side.
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "harness/exit_status.h"
#include "harness/options.h"
#include "harness/progress.h"
#include "harness/verbs.h"
#include "reports/compare.h"
#include "reports/text.h"

namespace smla {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& word) { return word.find('/') != word.npos || word.ends_with(".csv") || fs::exists(word); }

/// The report that kernel names are looked up in: `in`, or the only one under the default folder.
std::string report_of_kernels(const std::string& in) {
  if (!in.empty()) return in;
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(Options().out, error))
    if (fs::exists(entry.path() / file_name<ThroughputRow>())) found.push_back(entry.path().string());
  if (found.size() != 1)
    throw UsageError(fmt::format("compare: two kernels of which report? {} holds {}: give --in DIR", Options().out,
                                 found.empty() ? "none" : fmt::format("{}", fmt::join(found, " and "))));
  return found[0];
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
  TimedSet a, b;
  if (kernels) {
    const TimedSet both = read_timed(report_of_kernels(flags.in));
    a = only_kernel(both, flags.a);
    b = only_kernel(both, flags.b);
  } else {
    a = read_timed(flags.a);
    b = read_timed(flags.b);
  }
  for (const TimedSet* set : {&a, &b})
    for (const std::string& text : set->notes) tell(text);
  const auto comparisons = compare(a, b, {.margin = flags.margin, .any_kernel = kernels});
  if (comparisons.empty()) throw NothingMatched("compare: both reports are empty");
  const Table pairs = comparison_table(comparisons), means = geomean_table(geomeans(comparisons)), best = best_table(best_kernels(b));
  const std::string counts = verdict_counts(comparisons);
  if (flags.csv == "-") fmt::print("{}", pairs.csv());
  else {
    fmt::print("a = {}\nb = {}\nratio = time of b over time of a, beyond a margin of {:g} %\n\n{}\n{}\n\n{}\n", flags.a, flags.b, 100 * flags.margin,
               pairs.text(), counts, means.text());
    if (!kernels) fmt::print("best kernels of b\n{}", best.text());
    if (!flags.csv.empty()) write_text_file(flags.csv, pairs.csv());
  }
  if (!flags.markdown.empty())
    write_text_file(flags.markdown,
                    fmt::format("# {} against {}\n\n{}\n\n{}\n## Geometric means\n\n{}{}", markdown_cell(flags.b), markdown_cell(flags.a), counts,
                                pairs.markdown(), means.markdown(), kernels ? "" : "\n## Best kernels\n\n" + best.markdown()));
  return kAllGreen;
}

}  // namespace smla
