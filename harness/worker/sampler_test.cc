// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "smla_catch.h"

using namespace smla;

TEST_CASE("quantiles of known samples") {
  std::vector<double> samples(101);
  std::iota(samples.rbegin(), samples.rend(), 0.0);
  const Spread s = spread(samples);
  CHECK(s.min == 0);
  CHECK(s.q1 == 25);
  CHECK(s.median == 50);
  CHECK(s.q3 == 75);
  CHECK(s.p95 == 95);
  CHECK(s.rel_iqr == 1);
  CHECK(spread({1, 2}).median == 1.5);
  CHECK(spread({7}).ci95_hi == 7);
  CHECK_THROWS_AS(spread({}), std::invalid_argument);
}

TEST_CASE("ranks of the median's interval are those of the published tables") {
  // Conover, Practical Nonparametric Statistics: 1-based ranks (2, 9), (6, 15), (40, 61)
  for (auto [n, lo, hi] : {std::tuple{10, 2, 9}, {20, 6, 15}, {100, 40, 61}}) {
    INFO(n);
    CHECK(median_ranks(n).lo == lo - 1);
    CHECK(median_ranks(n).hi == hi - 1);
  }
  for (int64_t n : {1, 2, 5}) {
    CHECK(median_ranks(n).lo == 0);
    CHECK(median_ranks(n).hi == n - 1);
  }
  CHECK(median_ranks(6).lo == 0);
  const Ranks many = median_ranks(1000000);
  CHECK(many.lo + many.hi == 999999);
  CHECK(std::abs(static_cast<double>(many.hi - many.lo) / 2 - 980) < 2);  // 1.96 sqrt(n) / 2
}

TEST_CASE("the interval covers the median as often as it says, whatever the distribution") {
  std::mt19937 random(3);
  std::lognormal_distribution<double> skewed(0, 1);  // median 1
  for (int n : {8, 15, 40}) {
    int covered = 0;
    constexpr int kRounds = 4000;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> samples(static_cast<size_t>(n));
      for (double& x : samples) x = skewed(random);
      const Spread s = spread(samples);
      covered += s.ci95_lo <= 1 && 1 <= s.ci95_hi;
    }
    INFO(n);
    CHECK(covered > 0.94 * kRounds);
    CHECK(covered < 0.995 * kRounds);
  }
}

TEST_CASE("sampling stops for quiet, for time, and not before there are enough") {
  std::vector<double> quiet(5, 1.0), noisy;
  CHECK(StopRule(5, 0.02, 1).after(quiet, 0).value() == "noise");
  CHECK(!StopRule(6, 0.02, 1).after(quiet, 0));
  CHECK(StopRule(6, 0.02, 1).after(quiet, 1).value() == "max_time");  // quiet, but too few to be sure of it
  quiet.pop_back();
  CHECK(!StopRule(6, 0.02, 1).after(quiet, 3.9));  // out of time, but too few for any verdict
  CHECK(StopRule(6, 0.02, 1).after(quiet, 4).value() == "max_time");
  CHECK(StopRule(6, 0.02, 1).after({}, 4).value() == "max_time");  // all discarded
  for (int i = 0; i < 50; ++i) noisy.push_back(i % 2 ? 1.0 : 2.0);
  CHECK(!StopRule(5, 0.02, 1).after(noisy, 0.5));
  CHECK(StopRule(5, 0.02, 1).after(noisy, 1).value() == "max_time");
  StopRule rule(5, 0.02, 100);  // looks again after an eighth more
  noisy.assign(8, 1.0);
  noisy[0] = 9, noisy[1] = 9, noisy[2] = 9, noisy[3] = 9;
  CHECK(!rule.after(noisy, 0));
  for (int i = 0; i < 200; ++i) noisy.push_back(1.0);
  CHECK(rule.after(noisy, 0).value() == "noise");
}
