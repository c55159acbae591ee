// SPDX-License-Identifier: Apache-2.0
// What a sample says about a time, and two samples about a ratio. Everything is seeded: the same file gives the same verdict.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace smla {

/// p in [0, 1]; linear between order statistics (h = (n - 1) p), as numpy and pandas do by default. `values` in any order, at least one.
double quantile(std::vector<double> values, double p);
double median(std::vector<double> values);

struct Quartiles {
  double q1, median, q3;
};
Quartiles quartiles(std::vector<double> values);

struct Interval {
  double lo, hi;
};

/// Samples of one quantity in the rounds they were taken in. Samples of a round share what drifts between rounds (clock, temperature, page
/// placement).
using Rounds = std::vector<std::vector<double>>;

/// Medians of `resamples` bootstrap draws. With two rounds or more, rounds are drawn first and samples within them after, so that drift between
/// rounds counts.
std::vector<double> bootstrap_medians(const Rounds& rounds, int resamples = 1000, uint64_t seed = 1);
/// Percentile interval of the median.
Interval median_interval(const Rounds& rounds, double confidence = 0.95, int resamples = 1000, uint64_t seed = 1);
/// Standard error of the log of the median: the noise of one run, as a fraction.
double log_median_error(const Rounds& rounds, int resamples = 1000, uint64_t seed = 1);
/// The same from a summary, for a normal body: 1.2533 sigma / sqrt(n), sigma = (q3 - q1) / 1.349.
double log_median_error(const Quartiles& quartiles, int64_t samples);

/// Holm's step-down procedure over m tests at level alpha: the level at which test i is to be judged (alpha / (m - rank), until the first that is not
/// rejected). p in [0, 1].
std::vector<double> holm_levels(std::span<const double> p, double alpha);

/// exp(mean(log x)); every x > 0, at least one.
double geomean(std::span<const double> values);

/// P(N(0,1) <= x), and its inverse for p in (0, 1) (to 1e-9).
double normal_cdf(double x);
double normal_quantile(double p);

/// The same of Student's t with `dof` > 0 degrees of freedom: what a mean over its own estimated error follows, and what keeps an interval of few
/// samples honest.
double student_cdf(double t, double dof);
double student_quantile(double p, double dof);

}  // namespace smla
