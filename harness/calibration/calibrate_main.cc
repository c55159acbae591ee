// SPDX-License-Identifier: Apache-2.0
// How near healthy kernels come to the limits of reference/budget.h. Runs every healthy CPU kernel (built-ins, and their variants in other
// arithmetic) in this process over cases drawn from all value families, formats, sinks, K and splits, and prints the largest figures of each family
// and format. None may be flagged: each flagged run is printed as a case line and a kernel, and the exit status is 1.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <thread>

#include "cases/random.h"
#include "harness/checks.h"
#include "kernels/door.h"
#include "kernels/host_call.h"
#include "kernels/registry.h"
#include "reference/decode.h"
#include "reference/exact.h"
#include "reference/parallel.h"
#include "reports/csv.h"

namespace smla {
namespace {

/// A largest value and the kernel that reached it.
struct Largest {
  double value = 0;
  std::string kernel;
  void see(double candidate, const char* name) {
    if (candidate > value) value = candidate, kernel = name;
  }
  void see(const Largest& other) { see(other.value, other.kernel.c_str()); }
  std::string text() const { return kernel.empty() ? "" : fmt::format("{:.4g}", value); }
};

/// Figures of one family and format, over all kernels, each in the unit of its limit.
struct Figures {
  int64_t rows = 0, unjudged = 0, flagged = 0;
  Largest exact, z, rms, rms_any, rms_peaked, rms_score, pooled, lse;
  void see(const Figures& other);
};
struct Figure {
  const char* name;
  Largest Figures::*largest;
};
constexpr Figure kFigures[] = {{"exact_ratio", &Figures::exact},  // error / what the rule allows: of the families that have an exact answer
                               {"z_max", &Figures::z},            // of the others, like all that follow
                               {"row_rms", &Figures::rms},        // row rms / its limit, by the rule that gave the limit
                               {"row_rms_any", &Figures::rms_any},
                               {"row_rms_peaked", &Figures::rms_peaked},
                               {"row_rms_score", &Figures::rms_score},
                               {"pooled_rms", &Figures::pooled},
                               {"lse_ratio", &Figures::lse}};  // lse error / its limit, of all families, where the lse is f32

void Figures::see(const Figures& other) {
  rows += other.rows, unjudged += other.unjudged, flagged += other.flagged;
  for (const Figure& figure : kFigures) (this->*figure.largest).see(other.*figure.largest);
}

constexpr const char* kAllFamilies = "all";  // the line of a format over its families

/// The i-th case: family and format in turn, the rest drawn.
Case draw_case(uint64_t i) {
  static constexpr int32_t kTopk[] = {1, 2, 3, 8, 24, 64, 65, 128, 512, 2048}, kHeads[] = {1, 8, 16, 64}, kSplits[] = {0, 1, 4, 32};
  static constexpr Pattern kPatterns[] = {Pattern::scattered, Pattern::duplicates, Pattern::interleaved_invalid, Pattern::padded,
                                          Pattern::contiguous};
  static constexpr SinkKind kSinks[] = {SinkKind::none, SinkKind::finite, SinkKind::mixed};
  struct Format {
    FloatType q, rope;
    KvFormat kv;
    Scales scales;
  };
  static constexpr Format kFormats[] = {{FloatType::bf16, FloatType::bf16, KvFormat::bf16, Scales::arbitrary},
                                        {FloatType::fp16, FloatType::fp16, KvFormat::fp16, Scales::arbitrary},
                                        {FloatType::bf16, FloatType::bf16, KvFormat::fp8_656, Scales::arbitrary},
                                        {FloatType::fp16, FloatType::fp16, KvFormat::fp8_656, Scales::arbitrary},
                                        {FloatType::bf16, FloatType::bf16, KvFormat::fp8_656, Scales::pow2},
                                        {FloatType::fp16, FloatType::bf16, KvFormat::fp8_656, Scales::pow2}};
  Random random(i, Draw::q, 0);
  const auto pick = [&](const auto& list) { return list[random.below(std::size(list))]; };
  Case c;
  c.values = static_cast<Values>(i % std::size(Names<Values>::kAll));
  const uint64_t format = i / std::size(Names<Values>::kAll);
  const bool exact_codes = is_exact_family(c.values), rises = c.values >= Values::rising_max && c.values <= Values::late_max;
  Format chosen = kFormats[format % std::size(kFormats)];
  if (exact_codes && chosen.kv == KvFormat::fp8_656) chosen.scales = Scales::pow2;
  c.q_dtype = chosen.q, c.rope_dtype = chosen.rope, c.kv_format = chosen.kv, c.scales = chosen.scales;
  c.topk = pick(kTopk);
  c.s_kv = c.topk + static_cast<int32_t>(random.below(c.topk / 2 + 70));
  c.h_q = c.topk == 2048 ? 8 : pick(kHeads);
  c.b = c.topk == 2048 ? 1 : static_cast<int32_t>(random.between(1, 4));
  c.lens = random.below(4) == 0 ? Lens::mixed : Lens::full;
  c.pattern = rises ? (random.below(2) ? Pattern::sorted : Pattern::contiguous) : pick(kPatterns);
  c.sink = c.values == Values::exact_mean ? SinkKind::none : pick(kSinks);
  c.sm_scale = random.below(2) ? 0.0625f : 0.07216878f;  // 256^-0.5, 192^-0.5
  c.num_splits = pick(kSplits);
  c.seed = i + 1;
  validate(c);
  return c;
}

/// One kernel's outputs of the whole case, judged row by row.
Figures judge(const HostCall& call, const OracleBlock& block, const Contract& contract, bool split, const HostResult& result, const char* kernel) {
  const Inputs& in = call.inputs();
  const Limits limits;
  Figures figures;
  PooledRms pooled;
  std::vector<double> wide(in.c.d_v);
  std::vector<float> out(in.c.d_v);
  for (int64_t row = 0; row < block.rows(); ++row) {
    decode16(&result.out[row * in.c.d_v], in.c.q_dtype, in.c.d_v, wide.data());
    std::copy(wide.begin(), wide.end(), out.begin());
    const double lse = result.lse.empty() ? 0 : result.lse[row];
    const RowStats stats = judge_row_of_family(&block, row, in, row / in.c.h_q, static_cast<int32_t>(row % in.c.h_q), contract, split, out, lse);
    ++figures.rows;
    figures.unjudged += !stats.judged;
    figures.flagged += !stats.ok();
    if (contract.lse_dtype == LseType::f32) figures.lse.see(stats.lse_ratio, kernel);  // bf16 uses its half ulp up
    if (is_exact_family(in.c.values)) figures.exact.see(stats.z_max / limits.z_max, kernel);
    if (is_exact_family(in.c.values) || stats.empty || !stats.judged) continue;
    figures.z.see(stats.z_max, kernel);
    pooled.add(stats, in.c.d_v);
    Largest& rms = stats.rms_limit == limits.row_rms          ? figures.rms
                   : stats.rms_limit == limits.row_rms_peaked ? figures.rms_peaked
                   : stats.rms_limit == limits.row_rms_score  ? figures.rms_score
                                                              : figures.rms_any;
    rms.see(stats.rms / stats.rms_limit, kernel);
  }
  if (pooled.rows >= limits.pooled_min_rows) figures.pooled.see(pooled.value(), kernel);
  figures.flagged += !pooled.ok();
  return figures;
}

/// Every healthy CPU kernel on one case.
Figures run_case(const Case& c) {
  HostCall call(c);
  std::vector<int64_t> tokens(c.tokens());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<const smla_kernel*> healthy = kernels(KernelGroup::built_in);
  const auto variants = kernels(KernelGroup::variant);
  healthy.insert(healthy.end(), variants.begin(), variants.end());
  std::erase_if(healthy, [&](const smla_kernel* kernel) {
    return kernel->device != SMLA_DEVICE_CPU || !call.declines(*kernel).empty() ||
           !contract_excludes(contract(*kernel, call.problem()), call.inputs()).empty();
  });
  OracleOptions options;
  for (const smla_kernel* kernel : healthy) options.score_errors.push_back(score_error(contract(*kernel, call.problem()), c));
  const OracleBlock block = oracle(call.inputs(), tokens, options);
  Figures figures;
  for (const smla_kernel* kernel : healthy) {
    const HostResult result = call.run(*kernel);
    const Figures one = judge(call, block, contract(*kernel, call.problem()), splits_used(*kernel, call.problem()) != 1, result, kernel->name);
    if (one.flagged > 0) {
      std::string line = fmt::format("flagged: --kernel={} --case='{}':", kernel->name, to_line(c));
      for (const Figure& figure : kFigures) line += fmt::format(" {} {}", figure.name, (one.*figure.largest).text());
      fmt::print(stderr, "{}\n", line);
    }
    figures.see(one);
  }
  return figures;
}

int calibrate(uint64_t first, uint64_t count, int threads, const std::string& update) {
  std::vector<Figures> of_case(count);
  parallel_for(threads, static_cast<int64_t>(count), [&](int64_t i, int) { of_case[i] = run_case(draw_case(first + i)); });
  std::map<std::vector<std::string>, Figures> table;
  Figures all;
  for (uint64_t i = 0; i < count; ++i) {
    const Case c = draw_case(first + i);
    for (const std::string& values : {case_value(c, "values"), std::string(kAllFamilies)})
      table[{values, case_value(c, "q_dtype"), case_value(c, "kv_format"), case_value(c, "scales")}].see(of_case[i]);
    all.see(of_case[i]);
  }
  std::vector<std::string> header = {"values", "q_dtype", "kv_format", "scales", "rows", "rows_unjudged", "rows_flagged"};
  for (const Figure& figure : kFigures) header.insert(header.end(), {figure.name, std::string(figure.name) + "_kernel"});
  std::string csv = csv_line(header);
  for (const auto& [key, figures] : table) {
    std::vector<std::string> cells = key;
    cells.insert(cells.end(), {std::to_string(figures.rows), std::to_string(figures.unjudged), std::to_string(figures.flagged)});
    std::string line = fmt::format("{:13} {:4} {:7} {:9} {:7} rows {:6} unjudged", key[0], key[1], key[2], key[3], figures.rows, figures.unjudged);
    for (const Figure& figure : kFigures) {
      const Largest& largest = figures.*figure.largest;
      cells.insert(cells.end(), {largest.text(), largest.kernel});
      if (!largest.kernel.empty()) line += fmt::format("  {} {}", figure.name, largest.text());
    }
    csv += csv_line(cells);
    fmt::print("{}\n", line);
  }
  fmt::print("{} rows of {} cases, {} flagged, {} beyond the linearisation\n", all.rows, count, all.flagged, all.unjudged);
  for (const Figure& figure : kFigures)
    fmt::print("largest {:14} {:>8}  {}\n", figure.name, (all.*figure.largest).text(), (all.*figure.largest).kernel);
  if (!update.empty()) {
    std::FILE* file = std::fopen(update.c_str(), "w");
    if (file == nullptr || std::fputs(csv.c_str(), file) < 0 || std::fclose(file) != 0) throw UsageError("cannot write " + update);
  }
  return all.flagged > 0;
}

}  // namespace
}  // namespace smla

int main(int argc, char** argv) {
  CLI::App app("Runs the healthy CPU kernels over drawn cases and prints how near they come to each limit.");
  uint64_t first = 0, cases = 1000;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::string update;
  app.add_option("--first", first, "number of the first case");
  app.add_option("--cases", cases, "how many cases");
  app.add_option("--threads", threads, "cases at a time");
  app.add_option("--update", update, "also write the table to this CSV file (reports/data/healthy.csv is the reviewed one)");
  CLI11_PARSE(app, argc, argv);
  try {
    return smla::calibrate(first, cases, threads, update);
  } catch (const std::exception& error) {
    fmt::print(stderr, "smla_calibrate: {}\n", error.what());
    return 3;
  }
}
