// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/sampler.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace smla {
namespace {

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(at), above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Ranks median_ranks(int64_t n) {
  // The median lies below the k-th smallest with P(Binomial(n, 1/2) < k): the largest k that leaves at most 2.5 % on each side.
  double log_term = -static_cast<double>(n) * std::log(2.0), below = 0;
  int64_t k = 0;
  while (k < n / 2) {
    below += std::exp(log_term);  // P(Binomial <= k)
    if (below > 0.025) break;
    ++k;
    log_term += std::log(static_cast<double>(n - k + 1) / static_cast<double>(k));
  }
  return k == 0 ? Ranks{0, n - 1} : Ranks{k - 1, n - k};
}

Spread spread(std::vector<double> samples) {
  if (samples.empty()) throw std::invalid_argument("spread: no samples");
  std::sort(samples.begin(), samples.end());
  Spread s;
  s.min = samples.front();
  s.q1 = quantile(samples, 0.25);
  s.median = quantile(samples, 0.5);
  s.q3 = quantile(samples, 0.75);
  s.p95 = quantile(samples, 0.95);
  const Ranks ranks = median_ranks(std::ssize(samples));
  s.ci95_lo = samples[static_cast<size_t>(ranks.lo)];
  s.ci95_hi = samples[static_cast<size_t>(ranks.hi)];
  s.rel_iqr = s.median > 0 ? (s.q3 - s.q1) / s.median : 0;
  return s;
}

std::optional<std::string_view> StopRule::after(const std::vector<double>& samples, double spent_s) {
  const int64_t n = std::ssize(samples);
  if (n >= min_samples_ && n >= next_look_) {
    next_look_ = n + n / 8 + 1;
    if (spread(samples).rel_ci95() <= max_noise_) return "noise";
  }
  if (spent_s >= (n < kLeastSamples ? 4 : 1) * max_time_s_) return "max_time";
  return {};
}

}  // namespace smla
