// SPDX-License-Identifier: Apache-2.0
#include "reports/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace smla {
namespace {

double quantile_of_sorted(const std::vector<double>& sorted, double p) {
  const double h = static_cast<double>(sorted.size() - 1) * p;
  const auto below = static_cast<size_t>(h);
  const double fraction = h - static_cast<double>(below);
  return fraction == 0 ? sorted[below] : sorted[below] + fraction * (sorted[below + 1] - sorted[below]);
}

/// splitmix64: the same draws on every machine (std::uniform_int_distribution is not).
struct Draw {
  uint64_t state;
  size_t below(size_t n) {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return static_cast<size_t>((static_cast<unsigned __int128>(z) * n) >> 64);
  }
};

}  // namespace

double quantile(std::vector<double> values, double p) {
  if (values.empty() || !(p >= 0 && p <= 1)) throw std::invalid_argument("quantile: no values, or p outside [0, 1]");
  std::sort(values.begin(), values.end());
  return quantile_of_sorted(values, p);
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

Quartiles quartiles(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("quartiles: no values");
  std::sort(values.begin(), values.end());
  return {quantile_of_sorted(values, 0.25), quantile_of_sorted(values, 0.5), quantile_of_sorted(values, 0.75)};
}

std::vector<double> bootstrap_medians(const Rounds& rounds, int resamples, uint64_t seed) {
  for (const auto& round : rounds)
    if (round.empty()) throw std::invalid_argument("bootstrap_medians: a round without samples");
  if (rounds.empty()) throw std::invalid_argument("bootstrap_medians: no rounds");
  Draw draw{seed};
  std::vector<double> medians, drawn;
  for (int i = 0; i < resamples; ++i) {
    drawn.clear();
    for (size_t r = 0; r < rounds.size(); ++r) {
      const std::vector<double>& round = rounds.size() == 1 ? rounds[0] : rounds[draw.below(rounds.size())];
      for (size_t s = 0; s < round.size(); ++s) drawn.push_back(round[draw.below(round.size())]);
    }
    const auto middle = drawn.begin() + static_cast<ptrdiff_t>(drawn.size() / 2);
    std::nth_element(drawn.begin(), middle, drawn.end());
    const double upper = *middle;
    medians.push_back(drawn.size() % 2 == 1 ? upper : (*std::max_element(drawn.begin(), middle) + upper) / 2);
  }
  return medians;
}

Interval median_interval(const Rounds& rounds, double confidence, int resamples, uint64_t seed) {
  std::vector<double> medians = bootstrap_medians(rounds, resamples, seed);
  std::sort(medians.begin(), medians.end());
  const double tail = (1 - confidence) / 2;
  return {quantile_of_sorted(medians, tail), quantile_of_sorted(medians, 1 - tail)};
}

double log_median_error(const Rounds& rounds, int resamples, uint64_t seed) {
  const std::vector<double> medians = bootstrap_medians(rounds, resamples, seed);
  const double n = static_cast<double>(medians.size());
  double sum = 0, square = 0;
  for (double m : medians) {
    const double d = std::log(m / medians[0]);  // shifted: equal medians give exactly 0
    sum += d;
    square += d * d;
  }
  return std::sqrt(std::max(0.0, square / n - sum / n * (sum / n)));
}

double log_median_error(const Quartiles& q, int64_t samples) {
  return 1.2533 * (q.q3 - q.q1) / 1.349 / q.median / std::sqrt(static_cast<double>(samples));
}

std::vector<double> holm_levels(std::span<const double> p, double alpha) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return p[i] < p[j]; });
  std::vector<double> levels(p.size());
  size_t rejected = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    levels[order[rank]] = alpha / static_cast<double>(p.size() - rejected);
    if (rejected == rank && p[order[rank]] <= levels[order[rank]]) ++rejected;
  }
  return levels;
}

double geomean(std::span<const double> values) {
  if (values.empty()) throw std::invalid_argument("geomean: no values");
  double sum = 0;
  for (double v : values) sum += std::log(v);
  return std::exp(sum / static_cast<double>(values.size()));
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

namespace {

/// The x at which the ascending `cdf` comes to p.
template <class F>
double inverse(double p, F&& cdf) {
  if (!(p > 0 && p < 1)) throw std::invalid_argument("quantile of a distribution: p outside (0, 1)");
  double lo = -40, hi = 40;
  while (cdf(lo) > p) lo *= 2;
  while (cdf(hi) < p) hi *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (lo + hi) / 2;
    (cdf(middle) < p ? lo : hi) = middle;
  }
  return (lo + hi) / 2;
}

/// The regularised incomplete beta function I_x(a, b) by its continued fraction, which converges fast for x < (a + 1) / (a + b + 2).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)) / a;
  double value = 1;  // evaluated from the far end: 200 terms are more than any dof here needs
  for (int m = 200; m > 0; --m) {
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    value = 1 + even / (1 + odd / value);
  }
  const double first = -(a) * (a + b) * x / (a * (a + 1));
  return front / (1 + first / value);
}

}  // namespace

double normal_quantile(double p) { return inverse(p, normal_cdf); }

double student_cdf(double t, double dof) {
  const double tail = incomplete_beta(dof / 2, 0.5, dof / (dof + t * t)) / 2;
  return t > 0 ? 1 - tail : tail;
}
double student_quantile(double p, double dof) {
  return inverse(p, [dof](double t) { return student_cdf(t, dof); });
}

}  // namespace smla
