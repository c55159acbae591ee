// SPDX-License-Identifier: Apache-2.0
#include "harness/schedule.h"

#include <algorithm>
#include <numeric>

#include "cases/cost.h"
#include "reference/exact.h"

namespace smla {
namespace {

// For each kernel a quarter of the case's tensors within the first two bounds, the last for all together.
constexpr int64_t kHeldLeast_bytes = 24 << 20, kHeldMost_bytes = 64 << 20, kHeldAll_bytes = 256 << 20;

/// Base runs first, since others are held against them; then runs of the same inputs together, so that a worker generates them once for all kernels.
std::vector<size_t> by_inputs(const std::vector<ScheduledRun>& runs) {
  std::vector<std::string> seen{""};
  std::vector<size_t> rank, order(runs.size());
  for (const ScheduledRun& run : runs) {
    const auto found = std::find(seen.begin(), seen.end(), run.inputs);
    rank.push_back(static_cast<size_t>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(run.inputs);
  }
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] < rank[b]; });
  return order;
}

}  // namespace

Schedule schedule(const std::vector<ScheduledRun>& runs, const Inputs& in, int64_t tokens) {
  Schedule plan{.order = by_inputs(runs)};
  const auto count = [&](auto is) { return static_cast<int64_t>(std::count_if(runs.begin(), runs.end(), is)); };
  const int64_t kernels = std::max<int64_t>(1, count([](const ScheduledRun& run) { return run.base(); }));
  const int64_t limit_bytes = std::min(kernels * std::clamp(tensor_bytes(in) / 4, kHeldLeast_bytes, kHeldMost_bytes), kHeldAll_bytes);
  const int64_t token_bytes = static_cast<int64_t>(in.c.h_q) * (in.c.d_v * 2 + 4);
  int64_t held = std::max<int64_t>(1, count([](const ScheduledRun& run) { return run.rows_needed; }));
  const auto fit = [&] { return std::clamp<int64_t>(limit_bytes / (token_bytes * held), 1, tokens); };
  plan.waits = !needs_no_oracle(in.c.values) || fit() == tokens;
  if (!plan.waits) {
    plan.keeps_base = count([](const ScheduledRun& run) { return run.held_to_base; }) > 0;
    held = plan.keeps_base ? kernels + 1 : 1;
    plan.one_after_another = fit() < tokens;
    if (plan.one_after_another) {
      held = std::min<int64_t>(held, 2);
      std::stable_sort(plan.order.begin(), plan.order.end(), [&](size_t a, size_t b) { return runs[a].kernel < runs[b].kernel; });
    }
  }
  plan.chunk = static_cast<size_t>(fit());
  plan.held_bytes = fit() * token_bytes * held;
  return plan;
}

}  // namespace smla
