// SPDX-License-Identifier: Apache-2.0
// How long the inputs take to make: rows of the cache and of q are made for every selected row, by the worker and again by the oracle.
#include <benchmark/benchmark.h>

#include "cases/inputs.h"
#include "cases/values.h"

namespace smla {
namespace {

void set_label(benchmark::State& state, const std::string& line) {
  state.SetLabel(line);
  state.SetItemsProcessed(state.iterations());
}

void kv_rows(benchmark::State& state, const char* line) {
  const Inputs in = make_inputs(parse_line(line));
  uint8_t row[1152];
  int64_t slot = 0;
  for (auto _ : state) {
    kv_row(in, slot, row);
    benchmark::DoNotOptimize(row);
    slot = (slot + 1) % in.num_slots;
  }
  set_label(state, line);
}

void q_rows(benchmark::State& state, const char* line) {
  const Inputs in = make_inputs(parse_line(line));
  uint16_t row[576];
  int64_t t = 0;
  for (auto _ : state) {
    q_row(in, t, 0, row);
    benchmark::DoNotOptimize(row);
    t = (t + 1) % in.tokens();
  }
  set_label(state, line);
}

void lists(benchmark::State& state, const char* line) {
  const Case c = parse_line(line);
  for (auto _ : state) benchmark::DoNotOptimize(make_inputs(c));
  set_label(state, line);
}

BENCHMARK_CAPTURE(kv_rows, bf16, "decode");
BENCHMARK_CAPTURE(kv_rows, fp16, "decode q_dtype=fp16 kv_format=fp16");
BENCHMARK_CAPTURE(kv_rows, fp8_656, "decode kv_format=fp8_656");
BENCHMARK_CAPTURE(kv_rows, outliers, "decode values=outliers");
BENCHMARK_CAPTURE(kv_rows, needle, "decode values=needle");
BENCHMARK_CAPTURE(kv_rows, needle_fp8, "decode values=needle kv_format=fp8_656 scales=pow2");
BENCHMARK_CAPTURE(kv_rows, exact_mean, "decode values=exact_mean");
BENCHMARK_CAPTURE(q_rows, bf16, "decode b=64");
BENCHMARK_CAPTURE(q_rows, fp16, "decode b=64 q_dtype=fp16 kv_format=fp16");
BENCHMARK_CAPTURE(q_rows, large_logits, "decode b=64 values=large_logits");
BENCHMARK_CAPTURE(q_rows, needle, "decode b=64 values=needle");
BENCHMARK_CAPTURE(lists, decode, "decode b=64 s_kv=32768 topk=2048")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lists, far, "decode b=64 s_kv=32768 topk=2048 pattern=far page_size=1")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace smla

BENCHMARK_MAIN();
