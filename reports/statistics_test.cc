// SPDX-License-Identifier: Apache-2.0
#include "reports/statistics.h"

#include <algorithm>
#include <cmath>

#include "smla_catch.h"

using namespace smla;

namespace {

/// Seeded normal noise around a level that itself moves from round to round.
Rounds noisy(uint64_t seed, size_t rounds, size_t samples, double level, double within, double between) {
  const auto uniform = [&seed] {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(seed >> 11) + 0.5) * 0x1p-53;
  };
  Rounds all(rounds);
  for (auto& round : all) {
    const double centre = level * (1 + between * normal_quantile(uniform()));
    for (size_t i = 0; i < samples; ++i) round.push_back(centre * (1 + within * normal_quantile(uniform())));
  }
  return all;
}

}  // namespace

TEST_CASE("quantiles are numpy's default") {
  CHECK(median({3}) == 3);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(quantile({10, 20, 30, 40}, 0.25) == Approx(17.5));  // numpy.quantile([10,20,30,40], .25)
  CHECK(quantile({1, 2, 3}, 0) == 1);
  CHECK(quantile({1, 2, 3}, 1) == 3);
  CHECK(quantile({5, 1, 9, 7, 3, 2}, 0.95) == Approx(8.5));
  const Quartiles q = quartiles({7, 15, 36, 39, 40, 41});
  CHECK(q.q1 == Approx(20.25));
  CHECK(q.median == Approx(37.5));
  CHECK(q.q3 == Approx(39.75));
  CHECK_THROWS(median({}));
  CHECK_THROWS(quantile({1}, 1.5));
}

TEST_CASE("the normal distribution and its inverse") {
  CHECK(normal_cdf(0) == 0.5);
  CHECK(normal_cdf(1.959963985) == Approx(0.975).epsilon(1e-9));
  CHECK(normal_quantile(0.975) == Approx(1.959963985).epsilon(1e-8));
  CHECK(normal_quantile(1e-12) == Approx(-7.034483825).epsilon(1e-8));
  CHECK_THROWS(normal_quantile(0));
}

TEST_CASE("Holm's levels reject what the textbook rejects") {
  // p = .01 .04 .03 .005 at .05: .005 <= .05/4, .01 <= .05/3, .03 > .05/2: two are rejected, the rest stay at the level where it stopped.
  const double p[] = {0.01, 0.04, 0.03, 0.005};
  const std::vector<double> levels = holm_levels(p, 0.05);
  CHECK(levels[3] == Approx(0.05 / 4));
  CHECK(levels[0] == Approx(0.05 / 3));
  CHECK(levels[2] == Approx(0.05 / 2));
  CHECK(levels[1] == Approx(0.05 / 2));
  const double high_then_low[] = {0.02, 0.045, 0.02};  // none passes .05/3: .045 must not be rejected at .05
  for (double level : holm_levels(high_then_low, 0.05)) CHECK(level == Approx(0.05 / 3));
  CHECK(holm_levels({}, 0.05).empty());
}

TEST_CASE("geomean") {
  const double values[] = {0.5, 2, 4, 0.25};
  CHECK(geomean(values) == Approx(1));
  CHECK_THROWS(geomean({}));
}

TEST_CASE("the bootstrap is seeded, and exact where there is nothing to draw") {
  const Rounds rounds = noisy(1, 1, 31, 100, 0.02, 0);
  CHECK(bootstrap_medians(rounds, 50, 7) == bootstrap_medians(rounds, 50, 7));
  CHECK(bootstrap_medians(rounds, 50, 7) != bootstrap_medians(rounds, 50, 8));
  for (double m : bootstrap_medians({{5, 5}, {5}}, 20)) CHECK(m == 5);
  CHECK(log_median_error(Rounds{{5, 5, 5}}) == 0);
  const auto two = bootstrap_medians({{1, 3}}, 400);  // 1, 2, 3 with weights 1/4, 1/2, 1/4
  const auto share = [&](double v) { return static_cast<double>(std::count(two.begin(), two.end(), v)) / 400; };
  CHECK(share(1) + share(2) + share(3) == Approx(1));
  CHECK(share(2) == Approx(0.5).margin(0.08));
  CHECK_THROWS(bootstrap_medians({}));
  CHECK_THROWS(bootstrap_medians({{1}, {}}));
}

TEST_CASE("intervals cover the truth about as often as they say") {
  int covered = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Interval i = median_interval(noisy(seed, 1, 40, 100, 0.02, 0), 0.95, 300, seed);
    covered += i.lo <= 100 && 100 <= i.hi;
  }
  CHECK(covered > 270);  // 285 expected
  CHECK(covered < 298);
}

TEST_CASE("the error knows the drift between rounds, which pooling hides") {
  double with_rounds = 0, pooled = 0, summary = 0;
  std::vector<double> medians;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Rounds rounds = noisy(seed, 10, 10, 100, 0.005, 0.02);
    std::vector<double> all;
    for (const auto& round : rounds) all.insert(all.end(), round.begin(), round.end());
    medians.push_back(std::log(median(all)));
    with_rounds += log_median_error(rounds, 200) / 60;
    pooled += log_median_error({all}, 200) / 60;
    summary += log_median_error(quartiles(all), 100) / 60;
  }
  double mean = 0, square = 0;
  for (double m : medians) mean += m / 60;
  for (double m : medians) square += (m - mean) * (m - mean) / 59;
  const double truth = std::sqrt(square);
  CHECK(with_rounds == Approx(truth).epsilon(0.3));
  CHECK(pooled < 0.6 * truth);
  CHECK(summary < 0.6 * truth);  // a summary cannot know either: such verdicts say where they come from
}

TEST_CASE("from quartiles, of one steady round") {
  double drawn = 0, summary = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Rounds rounds = noisy(seed, 1, 101, 100, 0.02, 0);
    drawn += log_median_error(rounds, 200);
    summary += log_median_error(quartiles(rounds[0]), 101);
  }
  CHECK(summary == Approx(drawn).epsilon(0.15));
}

TEST_CASE("Student's t has the quantiles of the published tables") {
  for (auto [dof, p, t] :
       {std::tuple{1.0, 0.975, 12.7062}, {4.0, 0.975, 2.7764}, {9.0, 0.975, 2.2622}, {9.0, 0.9995, 4.7809}, {30.0, 0.95, 1.6973}}) {
    INFO(dof << " " << p);
    CHECK(student_quantile(p, dof) == Approx(t).epsilon(1e-4));
    CHECK(student_quantile(1 - p, dof) == Approx(-t).epsilon(1e-4));
    CHECK(student_cdf(t, dof) == Approx(p).epsilon(1e-5));
  }
  CHECK(student_quantile(0.975, 1e6) == Approx(normal_quantile(0.975)).epsilon(1e-5));
  CHECK(student_cdf(0, 3) == Approx(0.5));
}
