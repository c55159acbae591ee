// SPDX-License-Identifier: Apache-2.0
// What is timed, in the words of Google Benchmark: names, --benchmark_filter, benchmark.json and the formats of its own on stdout.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "harness/options.h"
#include "reports/record.h"
#include "reports/text.h"

namespace smla {

std::string benchmark_name(const std::string& kernel, const std::string& timing, bool cold, const Case& c);

/// --benchmark_filter: a regular expression found in the name; with a '-' before it, not found.
class NameFilter {
 public:
  /// Throws UsageError.
  explicit NameFilter(const std::string& text);
  bool operator()(const std::string& name) const { return all_ || regex_->found_in(name) != negative_; }

 private:
  bool negative_, all_;
  std::optional<TypedRegex> regex_;
};

/// Throws UsageError for what could else be told only after everything was timed: a --benchmark_filter that is none, a --benchmark_out that cannot be
/// written.
void refuse_bench_flags(const Options& options);

/// With --benchmark_format json or csv stdout holds what Google Benchmark prints and nothing else: from now on all other text goes to stderr.
void leave_stdout_to_theirs(const Options& options);

/// Hands the rows to Google Benchmark: one iteration each, of manual time. Writes benchmark.json.
void report_to_google_benchmark(const Options& options, const std::string& folder, const std::vector<ThroughputRow>& rows);

}  // namespace smla
