// SPDX-License-Identifier: Apache-2.0
// Two sets of timed rows side by side: ratio of medians with an interval, and a verdict. Nothing is dropped: what has no partner is shown as new or
// missing.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "reports/record.h"
#include "reports/report_file.h"
#include "reports/statistics.h"
#include "reports/table.h"

namespace smla {

/// throughput.csv, and the raw samples that stood beside it.
struct TimedSet {
  Report<ThroughputRow> report;
  std::map<std::string, Rounds> samples;  // by sample_key(); discarded samples left out
  std::vector<std::string> notes;         // a line each: what is missing on one side. A killed run leaves samples without a row
};
/// A throughput.csv; samples.csv beside it is read if there is one. Throws UsageError for a file that is not there or not whole, for times that
/// cannot be (a passed row without a positive median, or quartiles out of order), and for a row that says other quartiles than its own samples give.
TimedSet read_timed(const std::string& file);
/// The same of a report's folders (report_folders.h), as one set.
TimedSet read_timed(const std::vector<std::string>& folders);
/// Checks as above; `samples` may be null.
TimedSet make_timed(Report<ThroughputRow> report, const Report<SampleRow>* samples);
/// Only the rows of one kernel. Throws UsageError, naming the nearest, if the set has none.
TimedSet only_kernel(const TimedSet& set, const std::string& kernel);

struct CompareOptions {
  double margin = 0.01;     // a difference that is surely larger than this fraction is faster or slower
  double same = 0.02;       // one that surely is not larger than this (or the margin) is the same
  double alpha = 0.05;      // of a false faster or slower anywhere in the sweep (Holm)
  bool any_kernel = false;  // the two sets hold one kernel each, compared with one another
  int resamples = 1000;
};

struct Comparison {
  const ThroughputRow* a = nullptr;  // null: new
  const ThroughputRow* b = nullptr;  // null: missing
  Verdict verdict = Verdict::ambiguous;
  Measure ratio;                              // time of b over time of a: over 1 is slower
  Measure ratio_lo, ratio_hi;                 // at this test's Holm level ...
  Measure level;                              // ... which is, as a fraction: 0.95 for a pair alone, more for one of many
  double log_error = 0;                       // standard error of log(ratio): what an A/A comparison of these two would show
  double dof = 0;                             // degrees of freedom of that error: those of the side with fewer rounds (or samples)
  Measure detectable;                         // the least slowdown, as a fraction, that would have been called slower with 80 % power
  std::string interval_from;                  // samples, quartiles, or "" where there is none; with the reason where samples were there and not used
  double seems_slower = 1, seems_faster = 1;  // what else differs than the kernels can shift the ratio by these factors; the note says what
  std::string note;
  const ThroughputRow& any() const { return b != nullptr ? *b : *a; }
};

/// Rows match on (case_id, kernel, timing, cache). Throws UsageError naming both rows where two that match come from another device, power limit or
/// ECC. A pair with fewer than 5 samples is ambiguous; so is one whose difference another clock or a longer launch can explain (a lower clock of
/// the baseline does not excuse a slower run). Interval: log ratio +- t * log_error, t by Student's distribution at the pair's Holm level;
/// log_error by a seeded bootstrap of the medians from samples.csv, else from the quartiles, and between two runs what runs differ by beyond that.
/// slower / faster: the interval lies beyond the margin. same: it lies within. ambiguous: neither, measure again. Pointers into the sets. Order: as
/// in `a`, then what only `b` has.
std::vector<Comparison> compare(const TimedSet& a, const TimedSet& b, const CompareOptions& options = {});

/// One line: what the intervals of such a comparison are, and why another margin gives others.
std::string interval_method(const std::vector<Comparison>& comparisons, const CompareOptions& options);

/// Geometric mean of the ratios of all matched pairs by kernels, timing and cache: a case that is timed by events and in a graph counts once in each.
struct GeomeanRow {
  std::string kernel_a, kernel_b, timing, cache;
  size_t pairs;
  double ratio;
};
std::vector<GeomeanRow> geomeans(const std::vector<Comparison>& comparisons);

/// The fastest passed kernel for each (case, timing, cache), beside the next.
struct BestKernel {
  const ThroughputRow* best = nullptr;
  const ThroughputRow* next = nullptr;  // null: no other kernel was timed
  bool clear = false;                   // a 95 % interval of next / best lies above 1
};
std::vector<BestKernel> best_kernels(const TimedSet& set, int resamples = 1000);

Table comparison_table(const std::vector<Comparison>& comparisons);
Table geomean_table(const std::vector<GeomeanRow>& means);
Table best_table(const std::vector<BestKernel>& best);

std::string row_key(const ThroughputRow& row, bool any_kernel = false);

}  // namespace smla
