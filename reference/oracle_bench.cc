// SPDX-License-Identifier: Apache-2.0
// How fast the oracle is, against what Eigen makes of a plain fp64 product of 1024^3 on as many threads in the same run. FLOPs are those that the
// definition and its budget need: 2 (d_qk + 3 d_v) a (head, key). Goals: of_gemm >= 0.6 from 64 heads on, >= 0.2 with 8. Generating the rows is
// reported apart.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "reference/oracle.h"
#include "reference/parallel.h"

namespace smla {
namespace {

using Clock = std::chrono::steady_clock;

/// FLOPs per second of one product of kN^3 on each thread.
class Gemm {
 public:
  explicit Gemm(int threads) : a_(threads, RowMatrixXd::Random(kN, kN)), b_(a_), c_(a_) {}
  double measure() {
    const auto threads = static_cast<int>(a_.size());
    const auto start = Clock::now();
    parallel_for(threads, threads, [&](int64_t i, int) { c_[i].noalias() = a_[i] * b_[i]; });
    benchmark::DoNotOptimize(c_.data());
    return threads * 2.0 * kN * kN * kN / std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  static constexpr int kN = 1024;
  std::vector<RowMatrixXd> a_, b_, c_;
};

void bench_oracle(benchmark::State& state, int h_q, const char* format, int tokens, int threads) {
  const Inputs in = make_inputs(parse_line(fmt::format("decode b={} s_q=1 h_q={} s_kv=16384 topk=2048 {}", tokens, h_q, format)));
  std::vector<int64_t> all(tokens);
  std::iota(all.begin(), all.end(), 0);
  const double flops = 2.0 * (in.c.d_qk + 3 * in.c.d_v) * h_q * static_cast<double>(in.valid_keys);
  Gemm gemm(threads);
  double best = 0, best_gemm = 0, generate_ms = 0;  // taken in turns, so that both see the same neighbours
  for (auto _ : state) {
    const OracleBlock block = oracle(in, all, {.threads = threads});
    state.SetIterationTime(block.compute_ms / 1e3);
    best = std::max(best, flops / (block.compute_ms / 1e3));
    best_gemm = std::max(best_gemm, gemm.measure());
    generate_ms = block.generate_ms;
  }
  state.counters["gflop_per_s"] = best / 1e9;
  state.counters["of_gemm"] = best / best_gemm;
  state.counters["generate_ms"] = generate_ms;
}

}  // namespace
}  // namespace smla

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (const int threads : cores > 1 ? std::vector{1, cores} : std::vector{1})
    for (const int tokens : {1, 8 * threads})
      for (const int h_q : {8, 16, 64, 128})
        for (const char* format : {"", "kv_format=fp8_656"})
          benchmark::RegisterBenchmark(fmt::format("oracle/h_q={}/tokens={}/threads={}/{}", h_q, tokens, threads, format).c_str(),
                                       [=](benchmark::State& state) { smla::bench_oracle(state, h_q, format, tokens, threads); })
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 3;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
