// SPDX-License-Identifier: Apache-2.0
// Throughput of pairs that passed: samples are taken by the worker, told through Google Benchmark, and written to throughput.csv.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "harness/sweep.h"
#include "reports/record.h"

namespace smla {

struct BenchResult {
  Tally tally;  // of rows: a pair in one timing and state of the cache
  int signal = 0;
  double wall_s = 0;
  int exit_status() const;
};
/// What the user is told once where a GPU was timed and does not say how it was; "" otherwise.
std::string clocks_warning(std::span<const ThroughputRow> rows);

/// What the resumed run has timed is told again to Google Benchmark, so that its file is whole, and not written again.
/// Each (case, kernel) is registered once with Google Benchmark: manual time, one iteration, the median as its time, quartiles as counters.
BenchResult bench_pairs(const Job& job, std::vector<PassedPair> pairs);

/// True if the run that is resumed has all rows of this pair.
bool wholly_timed_before(const Job& job, const Case& c, const Candidate& kernel);

}  // namespace smla
