// SPDX-License-Identifier: Apache-2.0
// What samples of a time say, and when there are enough of them. Pure functions.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace smla {

/// Order statistics of samples in any order. Quantiles interpolate between neighbours (as numpy's default does).
struct Spread {
  double min = 0, q1 = 0, median = 0, q3 = 0, p95 = 0;
  double ci95_lo = 0, ci95_hi = 0;  // of the median
  double rel_iqr = 0;               // (q3 - q1) / median
  double rel_ci95() const { return median > 0 ? (ci95_hi - ci95_lo) / 2 / median : 0; }
};
/// Throws std::invalid_argument for no samples.
Spread spread(std::vector<double> samples);

/// Ranks [lo, hi] (0-based) of the sorted samples between which the median lies with at least 95 %, whatever the distribution: the binomial interval.
/// It needs no resampling and no seed, and holds for few samples, where a bootstrap's is too narrow. Below 6 samples no such interval exists: all of
/// them, which is 1 - 2^(1-n).
struct Ranks {
  int64_t lo, hi;
};
Ranks median_ranks(int64_t n);

/// Below so many no verdict is given on a time (reports/compare.h).
inline constexpr int64_t kLeastSamples = 5;

/// Says when to stop: half the interval's width under max_noise times the median, once there are min_samples; or max_time_s of sampling spent, once
/// there are kLeastSamples (or four times as long: then with fewer).
class StopRule {
 public:
  StopRule(int min_samples, double max_noise, double max_time_s) : min_samples_(min_samples), max_noise_(max_noise), max_time_s_(max_time_s) {}
  /// "noise", "max_time", or nothing: go on. `spent_s` includes what lies between samples. Sorts only when the count has grown by an eighth.
  std::optional<std::string_view> after(const std::vector<double>& samples, double spent_s);

 private:
  int64_t min_samples_, next_look_ = 0;
  double max_noise_, max_time_s_;
};

}  // namespace smla
