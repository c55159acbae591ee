// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace smla::cpu {

/// body(item, worker) for every item in [0, n), on at most `threads` threads; worker < threads. Items are handed out in order.
template <class Body>
void parallel_for(int64_t n, int threads, const Body& body) {
  const int workers = static_cast<int>(std::clamp<int64_t>(n, 1, std::max(threads, 1)));
  std::atomic<int64_t> next{0};
  const auto work = [&](int worker) {
    for (int64_t item = next.fetch_add(1); item < n; item = next.fetch_add(1)) body(item, worker);
  };
  std::vector<std::jthread> others;
  for (int worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
  work(0);
}

}  // namespace smla::cpu
