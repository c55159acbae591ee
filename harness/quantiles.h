// SPDX-License-Identifier: Apache-2.0
// What a set of time samples amounts to.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace smla {

/// Quantile by linear interpolation between order statistics; `sorted` ascending and not empty.
inline double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

struct TimeSummary {
  double min = 0, q1 = 0, median = 0, q3 = 0, p95 = 0, ci95_lo = 0, ci95_hi = 0;
  double rel_iqr() const { return (q3 - q1) / median; }
};
/// The confidence interval of the median is by order statistics (binomial, normal approximation): no shape is assumed. `samples` not empty.
inline TimeSummary summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const double n = static_cast<double>(samples.size()), half = 0.98 * std::sqrt(n);  // 1.96 * sqrt(n) / 2
  const auto rank = [&](double r) { return samples[static_cast<size_t>(std::clamp(r, 1.0, n)) - 1]; };
  return {samples.front(),         quantile(samples, 0.25),        quantile(samples, 0.5),           quantile(samples, 0.75),
          quantile(samples, 0.95), rank(std::floor(n / 2 - half)), rank(std::ceil(n / 2 + half) + 1)};
}

}  // namespace smla
