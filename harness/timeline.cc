// SPDX-License-Identifier: Apache-2.0
#include "harness/timeline.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

namespace smla {

TimeShares shares(std::span<const Span> spans) {
  struct Edge {
    int64_t at_ns;
    size_t activity;
    int64_t change;
  };
  std::vector<Edge> edges;
  for (const Span& span : spans) {
    if (span.begin_ns >= span.end_ns) continue;
    edges.push_back({span.begin_ns, static_cast<size_t>(span.activity), 1});
    edges.push_back({span.end_ns, static_cast<size_t>(span.activity), -1});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at_ns < b.at_ns; });
  TimeShares ms{};
  std::array<int64_t, kActivities> going_on{};
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    going_on[edges[i].activity] += edges[i].change;
    const auto first = std::find_if(going_on.begin(), going_on.end(), [](int64_t n) { return n > 0; });
    if (first != going_on.end()) ms[static_cast<size_t>(first - going_on.begin())] += static_cast<double>(edges[i + 1].at_ns - edges[i].at_ns) / 1e6;
  }
  return ms;
}

void Timeline::add(std::span<const Span> spans) {
  const std::lock_guard lock(mutex_);
  spans_.insert(spans_.end(), spans.begin(), spans.end());
}

std::vector<Span> Timeline::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

TimeShares Timeline::settle(int64_t until_ns) {
  std::vector<Span> settled = take(), rest;
  for (Span& span : settled) {
    if (span.end_ns <= until_ns) continue;
    rest.push_back({span.activity, std::max(span.begin_ns, until_ns), span.end_ns});
    span.end_ns = until_ns;
  }
  add(rest);
  return shares(settled);
}

Timeline& worker_timeline() {
  static Timeline timeline;
  return timeline;
}

int64_t steady_now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace smla
