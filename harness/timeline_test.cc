// SPDX-License-Identifier: Apache-2.0
#include "harness/timeline.h"

#include <numeric>

#include "smla_catch.h"

using namespace smla;

namespace {

constexpr int64_t kMs = 1'000'000;
double of(const TimeShares& ms, Activity activity) { return ms[static_cast<size_t>(activity)]; }

}  // namespace

TEST_CASE("each moment counts once, for the kernel first and for the harness last") {
  const std::vector<Span> spans = {
      {Activity::ask, 0, 100 * kMs},           // a request ...
      {Activity::kernel, 10 * kMs, 30 * kMs},  // ... in which the kernel runs twice
      {Activity::kernel, 50 * kMs, 60 * kMs},
      {Activity::look, 30 * kMs, 40 * kMs},
      {Activity::compare, 20 * kMs, 55 * kMs},  // beside it the rows of another
      {Activity::oracle, 55 * kMs, 70 * kMs},
      {Activity::generate, 65 * kMs, 80 * kMs},
      {Activity::compare, 120 * kMs, 130 * kMs},  // nothing from 100 to 120
  };
  const TimeShares ms = shares(spans);
  CHECK(of(ms, Activity::kernel) == 30);
  CHECK(of(ms, Activity::oracle) == 10);
  CHECK(of(ms, Activity::generate) == 10);
  CHECK(of(ms, Activity::look) == 10);
  CHECK(of(ms, Activity::compare) == 10 + 10);
  CHECK(of(ms, Activity::ask) == 10 + 20);
  CHECK(std::accumulate(ms.begin(), ms.end(), 0.0) == 110);
}

TEST_CASE("the same activity on two threads counts once; spans that end before they begin do not count") {
  const TimeShares ms = shares(std::vector<Span>{{Activity::compare, 0, 3 * kMs}, {Activity::compare, kMs, 2 * kMs}, {Activity::kernel, 9, 3}});
  CHECK(of(ms, Activity::compare) == 3);
  CHECK(of(ms, Activity::kernel) == 0);
  CHECK(shares({}) == TimeShares{});
}

TEST_CASE("what is settled piece by piece is what is settled at once") {
  const std::vector<Span> spans = {{Activity::ask, 0, 40 * kMs}, {Activity::kernel, 10 * kMs, 30 * kMs}, {Activity::compare, 5 * kMs, 50 * kMs}};
  Timeline timeline;
  timeline.add(spans);
  TimeShares sum{};
  for (int64_t until_ms : {7, 20, 20, 45, 60}) {
    const TimeShares piece = timeline.settle(until_ms * kMs);
    for (size_t i = 0; i < kActivities; ++i) sum[i] += piece[i];
  }
  CHECK(sum == shares(spans));
  CHECK(timeline.take().empty());
}

TEST_CASE("what is noted is taken once") {
  Timeline timeline;
  { const Doing note(&timeline, Activity::report); }
  { const Doing nowhere(nullptr, Activity::report); }
  const std::vector<Span> taken = timeline.take();
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].activity == Activity::report);
  CHECK(taken[0].begin_ns <= taken[0].end_ns);
  CHECK(timeline.take().empty());
}
