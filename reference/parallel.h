// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace smla {

/// Calls body(i, worker) once for each i in [0, n) on up to `threads` threads, this one among them; worker in [0, threads) may index scratch memory.
/// Rethrows the first exception. What body(i) computes must not depend on the worker: then results do not depend on `threads`. Not to be nested.
inline void parallel_for(int threads, int64_t n, const std::function<void(int64_t i, int worker)>& body) {
  std::atomic<int64_t> next = 0;
  std::exception_ptr error;
  std::mutex error_mutex;
  auto work = [&](int worker) {
    try {
      for (int64_t i; (i = next++) < n;) body(i, worker);
    } catch (...) {
      next = n;
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int worker = 1; worker < std::min<int64_t>(threads, n); ++worker) pool.emplace_back(work, worker);
    work(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace smla
