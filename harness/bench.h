// SPDX-License-Identifier: Apache-2.0
// Throughput of pairs that passed: samples are taken by the worker, told through Google Benchmark, and written to throughput.csv.
#pragma once
#include <string>
#include <vector>

#include "harness/sweep.h"

namespace smla {

struct BenchResult {
  int64_t planned = 0, timed = 0, red = 0;
  int signal = 0;
  double wall_s = 0;
  int exit_status() const;
};
/// Each (case, kernel) is registered once with Google Benchmark: manual time, one iteration, the median as its time, quartiles as counters.
BenchResult bench_pairs(const Job& job, const std::vector<PassedPair>& pairs);

}  // namespace smla
