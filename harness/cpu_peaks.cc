// SPDX-License-Identifier: Apache-2.0
#include "harness/cpu_peaks.h"

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace smla {
namespace {

constexpr int kRuns = 5;
constexpr int64_t kPool_bytes = 256 << 20;

double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Best seconds of `work(thread)` on all threads at once: of the slowest thread, in its own time, so that what else this machine does cannot lower a
/// peak.
double best_seconds(int threads, const std::function<void(int)>& work) {
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> seconds(static_cast<size_t>(threads));
    const auto timed = [&](int i) {
      const double start = thread_seconds();
      work(i);
      seconds[static_cast<size_t>(i)] = thread_seconds() - start;
    };
    std::vector<std::thread> pool;
    for (int i = 1; i < threads; ++i) pool.emplace_back(timed, i);
    timed(0);
    for (std::thread& thread : pool) thread.join();
    best = std::min(best, *std::max_element(seconds.begin(), seconds.end()));
  }
  return best;
}

/// Keeps a result alive without storing it anywhere that matters.
void keep(__m256 value) { asm volatile("" : : "x"(value)); }

void multiply_add(int64_t rounds) {
  constexpr int kChains = 12;  // 2 ports, latency 4 to 5, one register each for a and b
  __m256 sum[kChains];
  for (auto& s : sum) s = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < rounds; ++i)
    for (auto& s : sum) s = _mm256_fmadd_ps(s, a, b);
  for (auto& s : sum) keep(s);
}

void read_bytes(const uint8_t* from, int64_t n) {
  __m256 s[4] = {};
  for (int64_t i = 0; i + 128 <= n; i += 128)
    for (int j = 0; j < 4; ++j) s[j] = _mm256_xor_ps(s[j], _mm256_loadu_ps(reinterpret_cast<const float*>(from + i + 32 * j)));
  for (auto& x : s) keep(x);
}

}  // namespace

CpuPeaks measure_cpu_peaks(int threads) {
  CpuPeaks peaks;
  peaks.threads = threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  peaks.l3_bytes = std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));

  constexpr int64_t kRounds = 1 << 20;
  const double fma_s = best_seconds(peaks.threads, [](int) { multiply_add(kRounds); });
  peaks.fma_tflops = static_cast<double>(kRounds) * 12 * 8 * 2 * peaks.threads / fma_s / 1e12;

  std::vector<uint8_t> pool(kPool_bytes, 1);
  const int64_t share = kPool_bytes / peaks.threads;
  const double read_s = best_seconds(peaks.threads, [&](int i) { read_bytes(pool.data() + i * share, share); });
  peaks.read_gbps = static_cast<double>(share) * peaks.threads / read_s / 1e9;

  const int64_t half = share / 2;
  const double copy_s =
      best_seconds(peaks.threads, [&](int i) { std::memcpy(pool.data() + i * share + half, pool.data() + i * share, static_cast<size_t>(half)); });
  peaks.copy_gbps = static_cast<double>(2 * half) * peaks.threads / copy_s / 1e9;

  for (size_t format = 0; format < 2; ++format) {
    const int64_t row_bytes = kGatherRow_bytes[format], rows = kPool_bytes / row_bytes, visits = rows / peaks.threads;
    const double gather_s = best_seconds(peaks.threads, [&](int i) {
      uint64_t state = 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(i + 1);
      for (int64_t visit = 0; visit < visits; ++visit) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        read_bytes(pool.data() + static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(rows)) * row_bytes, row_bytes);
      }
    });
    peaks.gather_gbps[format] = static_cast<double>(visits) * peaks.threads * static_cast<double>(row_bytes) / gather_s / 1e9;
  }
  return peaks;
}

}  // namespace smla
