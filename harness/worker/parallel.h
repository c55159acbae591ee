// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "harness/worker/blackbox.h"

namespace smla {

/// Calls f(begin, end) over pieces of [0, n) of about `grain`, from at most so many threads (all that the machine has). f may not throw. Small n
/// stays on the caller's thread.
template <class F>
void parallel_pieces(int64_t n, int64_t grain, F&& f, int64_t most_threads = std::max(1u, std::thread::hardware_concurrency())) {
  const int64_t pieces = (n + grain - 1) / grain, threads = std::min<int64_t>(pieces, most_threads);
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) f(i * grain, std::min(n, (i + 1) * grain));
  };
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < threads; ++i)
    others.emplace_back([&] {
      this_thread_is_ours();
      work();
    });
  work();
}

}  // namespace smla
