// SPDX-License-Identifier: Apache-2.0
#include "harness/bench.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cases/cost.h"
#include "harness/cpu_peaks.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
#include "harness/progress.h"
#include "harness/rows.h"
#include "harness/table.h"
#include "reports/outcome.h"
#include "reports/report_file.h"
#include "reports/statistics.h"

namespace smla {
namespace {

constexpr double kRoofSlack = 1.05;  // measured peaks are themselves uncertain by so much

std::string timing_word(const Options& options, const Candidate& kernel) {
  return options.graph ? "graph" : kernel.info.device == "cpu" ? "wall" : "event";
}
std::string cache_word(bool cold) { return cold ? "cold" : "warm"; }

/// Cold or not, in the order in which they are timed.
std::vector<bool> caches_of(const Options& options) {
  std::vector<bool> caches;
  if (options.cache != CacheState::warm) caches.push_back(true);
  if (options.cache != CacheState::cold) caches.push_back(false);
  return caches;
}

/// The row of the run that is resumed; null: not timed yet.
const ThroughputRow* timed_before(const Job& job, const Case& c, const Candidate& kernel, bool cold) {
  return job.earlier.timed(c, kernel.info.name, timing_word(job.options, kernel), cache_word(cold));
}

/// Times one pair and fills its row.
class Timer {
 public:
  explicit Timer(const Job& job) : job_(job), options_(job.options), run_(job.run) {}

  ThroughputRow time(PassedPair& pair, bool cold) {
    const Decision again = pair.bits ? Decision{} : judge_again(job_, pair);
    if (!pair.bits) {
      ThroughputRow row = begun(pair, cold);
      row.status = again.status();
      row.detail = "passed before the run was resumed, now: " + again.detail();
      return row;
    }
    if (!peaks_) peaks_ = measure_cpu_peaks(options_.threads);
    TimeRequest request;
    request.c = pair.planned.c();
    request.kernel = pair.candidate.info.name;
    request.cold = cold;
    request.graph = options_.graph;
    request.min_samples = options_.min_samples;
    request.max_time_s = options_.max_time_s;
    request.max_noise = options_.max_noise;
    request.threads = options_.threads;
    request.deadline_s = options_.case_timeout_s + 2 * options_.max_time_s;
    const TimeReply reply = pair.candidate.worker->time(request);

    ThroughputRow row = begun(pair, cold);
    row.status = reply.status;
    row.detail = reply.detail;
    if (reply.status != Status::pass || reply.time_us.empty()) return row;
    figures(row, reply);
    row.outputs_verified = reply.out_hash.empty() ? Flag{}
                                                  : Flag{reply.out_hash.back() == pair.bits->out_hash &&
                                                         (!pair.bits->has_lse || reply.lse_hash.back() == pair.bits->lse_hash)};
    if (row.outputs_verified == Flag{false} && pair.bits->deterministic) {
      row.status = Status::fail;
      row.detail = "the last timed call answered other bits than the checked one";
    } else if (row.roof_us && row.time_us_median < *row.roof_us / kRoofSlack) {
      row.status = Status::impossible_fast;
      row.detail = fmt::format("{:.3g} us is faster than this machine can do it ({:.3g} us, {})", *row.time_us_median, *row.roof_us, row.roof_bound);
    }
    return row;
  }

 private:
  /// A row that names what is timed.
  ThroughputRow begun(const PassedPair& pair, bool cold) const {
    ThroughputRow row;
    static_cast<Common&>(row) = common_of(run_, pair.planned, pair.about, pair.candidate.info.name);
    row.timing = timing_word(options_, pair.candidate);
    row.cache = cache_word(cold);
    row.repro = fmt::format("smla bench --kernel {} --case {} --cache {}{}", pair.candidate.info.name, shell_quote(to_line(pair.planned.c())),
                            row.cache, reproducer_flags(options_));
    return row;
  }

  void figures(ThroughputRow& row, const TimeReply& reply) const {
    const Quartiles t = quartiles(reply.time_us);
    const Interval median_ci95 = median_interval({reply.time_us});
    const Cost work = cost(make_inputs(row.c));
    row.samples = static_cast<int64_t>(reply.time_us.size());
    row.discarded = reply.discarded;
    row.stop_reason = reply.stop_reason;
    row.calls_per_sample = reply.calls_per_sample;
    row.cold_ratio = reply.cold_ratio;
    row.l2_bytes = reply.l2_bytes;
    row.time_us_min = *std::min_element(reply.time_us.begin(), reply.time_us.end());
    row.time_us_q1 = t.q1;
    row.time_us_median = t.median;
    row.time_us_q3 = t.q3;
    row.time_us_p95 = quantile(reply.time_us, 0.95);
    row.time_us_ci95_lo = median_ci95.lo;
    row.time_us_ci95_hi = median_ci95.hi;
    row.time_rel_iqr = (t.q3 - t.q1) / t.median;
    row.prepare_us = reply.prepare_us;
    row.host_launch_us = reply.host_launch_us;
    row.workspace_bytes = reply.workspace_bytes;
    if (reply.splits_used > 0) row.splits_used = reply.splits_used;
    row.flops = work.flops;
    row.bytes_unique = work.bytes_unique;
    row.bytes_gathered = work.bytes_gathered;
    row.tflops = static_cast<double>(work.flops) / t.median / 1e6;
    row.gbps_unique = static_cast<double>(work.bytes_unique) / t.median / 1e3;
    row.gbps_gathered = static_cast<double>(work.bytes_gathered) / t.median / 1e3;
    row.tokens_per_s = static_cast<double>(row.c.tokens()) / t.median * 1e6;
    row.verified_on_arch = run_.arch;
    if (run_.arch != "cpu_x86_64") return;  // a GPU's peaks are not measured yet: no roof is better than a wrong one
    const double compute_us = static_cast<double>(work.flops) / peaks_->fma_tflops / 1e6;
    const double memory_us = row.cache == "cold" ? static_cast<double>(work.bytes_unique) / peaks_->read_gbps / 1e3 : 0;
    row.roof_us = std::max(compute_us, memory_us);
    row.roof_bound = compute_us >= memory_us ? "compute" : "memory";
    row.roof_frac = *row.roof_us / t.median;
    row.peak_source = "fp32 fma and streaming read, measured in this run";
  }

  const Job& job_;
  const Options& options_;
  const Common& run_;
  std::optional<CpuPeaks> peaks_;  // measured once something is to be timed: a resumed run may have it all
};

/// Our table instead of Google Benchmark's, unless the user asked for a format of theirs.
class TableReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

std::string throughput_columns(const std::string& status, const std::string& kernel, const std::string& us, const std::string& iqr,
                               const std::string& gflops, const std::string& gbps, const std::string& roof, const std::string& line) {
  return fmt::format("{}{:<24} {:>11} {:>7} {:>9} {:>8} {:>7}  {}", status, kernel, us, iqr, gflops, gbps, roof, line);
}

void print_row(const ThroughputRow& row) {
  const bool timed = row.time_us_median.has_value();
  fmt::print("{}\n", throughput_columns(status_text(row.status, 16), row.kernel, timed ? fmt::format("{:.1f}", *row.time_us_median) : "",
                                        timed ? fmt::format("{:.1f}", *row.time_rel_iqr * 100) : "",
                                        timed ? fmt::format("{:.2f}", *row.tflops * 1e3) : "", timed ? fmt::format("{:.2f}", *row.gbps_gathered) : "",
                                        row.roof_frac ? fmt::format("{:.0f}", *row.roof_frac * 100) : "", to_line(row.c)));
  if (row.status != Status::pass) fmt::print("                {}\n                rerun: {}\n", row.detail, row.repro);
  std::fflush(stdout);
}

}  // namespace

int BenchResult::exit_status() const {
  return signal != 0 ? 128 + signal : red > 0 ? kThroughputRed : timed > 0 || planned == 0 ? kAllGreen : kNoPass;
}

bool wholly_timed_before(const Job& job, const Case& c, const Candidate& kernel) {
  const std::vector<bool> caches = caches_of(job.options);
  return std::all_of(caches.begin(), caches.end(), [&](bool cold) { return timed_before(job, c, kernel, cold) != nullptr; });
}

BenchResult bench_pairs(const Job& job, std::vector<PassedPair> pairs) {
  const Options& options = job.options;
  BenchResult result;
  const std::vector<bool> caches = caches_of(options);
  result.planned = static_cast<int64_t>(pairs.size() * caches.size());
  if (pairs.empty()) return result;

  const auto start = std::chrono::steady_clock::now();
  Timer timer(job);
  ReportWriter<ThroughputRow> writer(job.folder);
  Progress progress(options.progress, result.planned, "timed");
  const bool own_table = options.benchmark_format == "console";
  if (own_table)
    fmt::print("\n{}\n", throughput_columns(fmt::format("{:<16}", "status"), "kernel", "median us", "iqr %", "GFLOP/s", "GB/s", "roof %", "case"));

  const auto time_one = [&](benchmark::State& state, PassedPair& pair, bool cold) {
    if (result.signal == 0) result.signal = interrupted();
    if (result.signal != 0) return state.SkipWithError("interrupted");
    const ThroughputRow* before = timed_before(job, pair.planned.c(), pair.candidate, cold);
    const ThroughputRow row = before != nullptr ? *before : timer.time(pair, cold);
    if (before == nullptr && (result.signal = interrupted()) != 0) return state.SkipWithError("interrupted");
    for (auto _ : state) {  // exactly once
      static_cast<void>(_);
      state.SetIterationTime(row.time_us_median.value_or(0) / 1e6);
    }
    for (const auto& [name, value] : std::initializer_list<std::pair<const char*, Measure>>{
             {"q1_us", row.time_us_q1}, {"q3_us", row.time_us_q3}, {"tflops", row.tflops}, {"gbps_gathered", row.gbps_gathered}})
      if (value) state.counters[name] = *value;
    if (row.status != Status::pass) state.SkipWithError(row.detail.c_str());
    ++result.timed;
    result.red += is_red(row.status);
    if (before != nullptr) return;
    progress.clear();
    writer.append(row);
    if (own_table) print_row(row);
    progress.advance(1, to_line(pair.planned.c()));
  };
  benchmark::ClearRegisteredBenchmarks();
  for (PassedPair& pair : pairs)
    for (const bool cold : caches) {
      const std::string name = fmt::format("{} {} {}", pair.candidate.info.name, cold ? "cold" : "warm", to_line(pair.planned.c()));
      benchmark::RegisterBenchmark(name.c_str(), [&, cold](benchmark::State& state) { time_one(state, pair, cold); })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }

  std::vector<std::string> words{"smla",
                                 "--benchmark_out=" + (options.benchmark_out.empty() ? job.folder + "/benchmark.json" : options.benchmark_out),
                                 "--benchmark_out_format=json", "--benchmark_format=" + options.benchmark_format};
  if (!options.benchmark_filter.empty()) words.push_back("--benchmark_filter=" + options.benchmark_filter);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  benchmark::Initialize(&argc, argv.data());
  TableReporter silent;
  benchmark::RunSpecifiedBenchmarks(own_table ? &silent : nullptr);
  progress.clear();
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("\ntimed {} / planned {}  in {}\nreports: {}\n", result.timed, result.planned, clock_text(result.wall_s), job.folder);
  if (result.signal != 0)
    fmt::print("interrupted by signal {}: {} of {} pairs are in the report; go on with: {}\n", result.signal, result.timed, result.planned,
               resume_command(options));
  std::fflush(stdout);
  return result;
}

}  // namespace smla
