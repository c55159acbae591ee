// SPDX-License-Identifier: Apache-2.0
#include "harness/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "cases/cost.h"
#include "harness/cuda/nvml.h"
#include "harness/exit_status.h"
#include "harness/google_benchmark.h"
#include "harness/interrupt.h"
#include "harness/peaks.h"
#include "harness/progress.h"
#include "harness/rerun.h"
#include "harness/rows.h"
#include "harness/table.h"
#include "harness/timed_case.h"
#include "reports/outcome.h"
#include "reports/report_file.h"
#include "reports/statistics.h"

namespace smla {
namespace {

constexpr double kRoofSlack = 1.05;  // measured peaks are themselves uncertain by so much
/// What sparsity is held against: the fastest of these, over the whole context of the same requests.
constexpr std::string_view kDenseKernels[] = {"dense_paged", "dense_wgmma", "cpu_dense"};
/// How pairs are timed: a row each. Work and kernel are not said yet.
std::vector<Lane> ways_of(const Options& options, bool gpu) {
  std::vector<Lane> ways;
  for (const bool graph : {false, true})
    for (const bool cold : {true, false})
      if ((graph ? options.timing != Timing::event && (gpu || options.timing == Timing::graph) : options.timing != Timing::graph) &&
          (cold ? options.cache != CacheState::warm : options.cache != CacheState::cold))
        ways.push_back({Lane::Work::kernel, "", graph, cold});
  return ways;
}
std::string timing_word(const Lane& way, bool gpu) { return way.graph ? "graph" : gpu ? "event" : "wall"; }
std::string cache_word(const Lane& way) { return way.cold ? "cold" : "warm"; }

/// The row of the run that is resumed; null: not timed yet.
const ThroughputRow* timed_before(const Job& job, const Case& c, const Candidate& kernel, const Lane& way) {
  return job.earlier.timed(c, kernel.info.name, timing_word(way, kernel.info.device != "cpu"), cache_word(way));
}

/// Samples that count, and what is said of them.
struct Timed {
  std::vector<double> times_us;  // kept
  uint64_t throttle = 0;
  double capped = 0;  // of the kept ones
  explicit Timed(const LaneReply& lane) {
    for (size_t i = 0; i < lane.time_us.size(); ++i) {
      throttle |= lane.throttle[i];
      if (lane.throttle[i] & kThrottleSlowdown) continue;
      times_us.push_back(lane.time_us[i]);
      capped += (lane.throttle[i] & kThrottlePowerCap) != 0;
    }
  }
};
bool usable(const LaneReply* lane) { return lane != nullptr && lane->status == Status::pass && !Timed(*lane).times_us.empty(); }
Measure median_us(const LaneReply* lane) { return usable(lane) ? Measure{median(Timed(*lane).times_us)} : Measure{}; }
Measure known(double value) { return value > 0 ? Measure{value} : Measure{}; }

/// Times what passed of one case, all of it in turn, and fills its rows.
class Timer {
 public:
  explicit Timer(const Job& job) : job_(job), options_(job.options), device_(job.kernels.front().info.device), ways_(ways_of(job.options, gpu())) {
    for (const Candidate& candidate : job.session.all())
      if (candidate.info.device == device_ &&
          std::find(std::begin(kDenseKernels), std::end(kDenseKernels), candidate.info.name) != std::end(kDenseKernels))
        dense_.push_back(candidate);
  }
  const std::vector<Lane>& ways() const { return ways_; }
  std::string timing_of(const Lane& way) const { return timing_word(way, gpu()); }

  struct Rows {
    std::vector<ThroughputRow> rows;
    std::vector<SampleRow> samples;
  };
  /// One element a pair. `wanted` says which (pair, way) are.
  template <class Wanted>
  std::vector<Rows> time(const std::vector<PassedPair*>& pairs, const Wanted& asked) {
    // Of a resumed run: the bits that it answered are not known any more, so it is judged once more.
    std::map<const PassedPair*, Decision> lost;
    for (PassedPair* pair : pairs)
      if (!pair->bits && std::any_of(ways_.begin(), ways_.end(), [&](const Lane& way) { return asked(*pair, way); }))
        if (const Decision again = judge_again(job_, *pair); !pair->bits) lost[pair] = again;
    const auto wanted = [&](const PassedPair& pair, const Lane& way) { return asked(pair, way) && !lost.contains(&pair); };
    measure_peaks_once();
    TimedCase timed;
    for (const Lane& way : ways_) {
      const auto lane = [&](Lane::Work work, const std::string& kernel) { return Lane{work, kernel, way.graph, way.cold}; };
      bool any = false;
      for (const PassedPair* pair : pairs)
        if (wanted(*pair, way)) timed.ask(pair->candidate.worker, lane(Lane::Work::kernel, pair->candidate.info.name)), any = true;
      if (!any) continue;
      const Candidate& first = pairs.front()->candidate;
      timed.ask(first.worker, lane(Lane::Work::gather, first.info.name));
      if (gpu()) timed.ask(first.worker, lane(Lane::Work::empty, first.info.name));  // on the CPU the call itself is timed: its floor is the clock's
      for (const Candidate& dense : dense_) {
        timed.ask(dense.worker, lane(Lane::Work::dense, dense.info.name));
        timed.ask(dense.worker, lane(Lane::Work::dense_topk, dense.info.name));
      }
    }
    TimeRequest request;
    request.c = pairs.front()->planned.c();
    request.min_samples = options_.min_samples > 0 ? options_.min_samples : kMinSamples[gpu()];
    request.max_time_s = options_.max_time_s;
    request.max_noise = options_.max_noise > 0 ? options_.max_noise : kMaxNoise[gpu()];
    request.threads = options_.threads;
    request.deadline_s = options_.case_timeout_s;
    timed.run(std::move(request));

    const Inputs in = make_inputs(pairs.front()->planned.c());
    std::vector<Rows> all;
    for (const PassedPair* pair : pairs) {
      Rows rows;
      for (const Lane& way : ways_) {
        if (wanted(*pair, way)) add_row(rows, *pair, way, timed, in);
        else if (asked(*pair, way)) rows.rows.push_back(lost_row(*pair, way, lost[pair]));
      }
      all.push_back(std::move(rows));
    }
    return all;
  }

 private:
  bool gpu() const { return device_ != "cpu"; }
  /// Once something is to be timed: a resumed run may have it all.
  void measure_peaks_once() {
    if (!peaks_.all.empty() || !peaks_.source.empty()) return;
    peaks_ = measure_peaks(device_, options_.gpus.empty() ? 0 : options_.gpus.front(), options_.threads);
    write_peaks(job_.folder, job_.run, peaks_);
  }
  /// A row that names what is timed.
  ThroughputRow begun(const PassedPair& pair, const Lane& way) const {
    ThroughputRow row;
    static_cast<Common&>(row) = common_of(job_.run, pair.planned, pair.valid_keys, pair.candidate.info.name);
    row.timing = timing_of(way);
    row.cache = cache_word(way);
    const std::string way_flags = fmt::format(" --cache {}{}", row.cache, way.graph ? " --timing graph" : "");
    row.repro = rerun_of(options_).line("bench", row.kernel, pair.planned.c(), way_flags + timing_flags(options_));
    return row;
  }
  ThroughputRow lost_row(const PassedPair& pair, const Lane& way, const Decision& again) const {
    ThroughputRow row = begun(pair, way);
    row.status = again.status();
    row.detail = "passed before the run was resumed, now: " + again.detail();
    return row;
  }
  void add_row(Rows& to, const PassedPair& pair, const Lane& way, const TimedCase& timed, const Inputs& in) {
    const std::string& kernel = pair.candidate.info.name;
    const LaneReply& lane = *timed.find(pair.candidate.worker, {Lane::Work::kernel, kernel, way.graph, way.cold});
    ThroughputRow row = begun(pair, way);
    row.status = lane.status;
    row.detail = lane.detail;
    if (usable(&lane)) {
      row.l2_bytes = timed.l2_bytes();
      figures(row, lane, pair, way, in);
      row.gather_floor_us = median_us(timed.find(Lane::Work::gather, way));
      row.launch_floor_us = median_us(timed.find(Lane::Work::empty, way));
      dense_figures(row, timed, way, in);
      judge(row, lane, pair);
      add_samples(to.samples, row, lane);
    }
    to.rows.push_back(std::move(row));
  }
  void figures(ThroughputRow& row, const LaneReply& lane, const PassedPair& pair, const Lane& way, const Inputs& in) {
    const Timed timed(lane);
    const Quartiles t = quartiles(timed.times_us);
    const Interval median_ci95 = median_interval({timed.times_us});
    const Cost work = cost(in);
    row.samples = std::ssize(timed.times_us);
    row.discarded = std::ssize(lane.time_us) - *row.samples;
    row.stop_reason = lane.stop_reason;
    row.calls_per_sample = lane.calls_per_sample;
    if (!way.cold || lane.cold_ratio > 0) row.cold_ratio = lane.cold_ratio;
    row.time_us_min = *std::min_element(timed.times_us.begin(), timed.times_us.end());
    row.time_us_q1 = t.q1;
    row.time_us_median = t.median;
    row.time_us_q3 = t.q3;
    row.time_us_p95 = quantile(timed.times_us, 0.95);
    row.time_us_ci95_lo = median_ci95.lo;
    row.time_us_ci95_hi = median_ci95.hi;
    row.time_rel_iqr = (t.q3 - t.q1) / t.median;
    row.prepare_us = lane.prepare_us;
    row.host_launch_us = known(lane.host_launch_us);
    row.workspace_bytes = lane.workspace_bytes;
    if (lane.splits_used > 0) row.splits_used = lane.splits_used;
    row.flops = work.flops;
    row.bytes_unique = work.bytes_unique;
    row.bytes_gathered = work.bytes_gathered;
    row.tflops = static_cast<double>(work.flops) / t.median / 1e6;
    row.gbps_unique = static_cast<double>(work.bytes_unique) / t.median / 1e3;
    row.gbps_gathered = static_cast<double>(work.bytes_gathered) / t.median / 1e3;
    row.tokens_per_s = static_cast<double>(row.c.tokens()) / t.median * 1e6;
    row.verified_on_arch = job_.run.arch;
    // Operands rounded to e4m3 may go through units that are twice as fast.
    const Roof roof = roof_of(peaks_, work.flops, work.bytes_unique, way.cold, pair.bits->contract.q == Rounding::e4m3 ? 2 : 1);
    row.peak_source = peaks_.source;
    if (!roof.bound.empty()) {
      row.roof_us = roof.us;
      row.roof_bound = roof.bound;
      row.roof_frac = roof.us / t.median;
    }
    if (!gpu()) return;
    std::vector<double> clocks;
    for (double mhz : lane.sm_clock_mhz)
      if (mhz > 0) clocks.push_back(mhz);
    if (clocks.empty()) return;  // nothing of what follows could be read
    row.sm_clock_mhz_median = median(clocks);
    row.mem_clock_mhz = known(lane.mem_clock_mhz);
    row.power_w_median = known(lane.power_w_median);
    row.temperature_c_max = known(lane.temperature_c_max);
    row.power_capped_frac = timed.capped / static_cast<double>(timed.times_us.size());
    row.clocks_locked = (timed.throttle & kThrottleClocksSet) != 0;
    row.throttle_reasons = throttle_words(timed.throttle);
  }

  void dense_figures(ThroughputRow& row, const TimedCase& timed, const Lane& way, const Inputs& in) const {
    for (const Candidate& dense : dense_) {
      const Measure us = median_us(timed.find(dense.worker, {Lane::Work::dense, dense.info.name, way.graph, way.cold}));
      if (!us || (row.dense_time_us_median && *row.dense_time_us_median <= *us)) continue;
      row.dense_kernel = dense.info.name;
      row.dense_time_us_median = us;
      row.dense_topk_time_us_median = median_us(timed.find(dense.worker, {Lane::Work::dense_topk, dense.info.name, way.graph, way.cold}));
    }
    if (!row.dense_time_us_median) return;
    row.speedup_vs_dense = *row.dense_time_us_median / *row.time_us_median;
    const Cost work = dense_cost(in);
    if (const Roof roof = roof_of(peaks_, work.flops, work.bytes_unique, way.cold); !roof.bound.empty()) row.dense_roof_us = roof.us;
  }

  void judge(ThroughputRow& row, const LaneReply& lane, const PassedPair& pair) const {
    const auto others = [](const std::vector<uint64_t>& hashes, uint64_t checked) {
      return std::ssize(hashes) - std::count(hashes.begin(), hashes.end(), checked);
    };
    const int64_t wrong = std::max(others(lane.out_hash, pair.bits->out_hash), pair.bits->has_lse ? others(lane.lse_hash, pair.bits->lse_hash) : 0);
    if (!lane.out_hash.empty()) row.outputs_verified = wrong == 0;
    if (wrong > 0 && pair.bits->contract.deterministic) {
      row.status = Status::fail;
      row.detail = fmt::format("of {} timed calls that were looked at {} answered other bits than the checked one", lane.out_hash.size(), wrong);
    } else if (row.roof_us && row.time_us_median < *row.roof_us / kRoofSlack) {
      row.status = Status::impossible_fast;
      row.detail = fmt::format("{:.3g} us is faster than this machine can do it ({:.3g} us, {})", *row.time_us_median, *row.roof_us, row.roof_bound);
    }
  }

  static void add_samples(std::vector<SampleRow>& samples, const ThroughputRow& row, const LaneReply& lane) {
    for (size_t i = 0; i < lane.time_us.size(); ++i) {
      SampleRow sample;
      sample.run_id = row.run_id;
      sample.arch = row.arch;
      sample.case_id = case_id(row.c);
      sample.kernel = row.kernel;
      sample.timing = row.timing;
      sample.cache = row.cache;
      sample.round = lane.round[i];
      sample.sample = static_cast<int64_t>(i);
      sample.calls_per_sample = lane.calls_per_sample;
      sample.time_us = lane.time_us[i];
      sample.sm_clock_mhz = known(lane.sm_clock_mhz[i]);
      if (sample.sm_clock_mhz) sample.power_capped = (lane.throttle[i] & kThrottlePowerCap) != 0;
      sample.discarded = (lane.throttle[i] & kThrottleSlowdown) != 0;
      samples.push_back(std::move(sample));
    }
  }

  const Job& job_;
  const Options& options_;
  const std::string device_;
  const std::vector<Lane> ways_;
  Peaks peaks_;
  std::vector<Candidate> dense_;
};

/// The line of a row; if it is not green the reason, and what asks it again.
void tell_row(const ThroughputRow& row) {
  fmt::print("{}\n", throughput_line(row));
  if (row.status != Status::pass) fmt::print("                {}\n                rerun: {}\n", row.detail, row.repro);
  std::fflush(stdout);
}

}  // namespace

int BenchResult::exit_status() const {
  return signal != 0 ? 128 + signal : tally.red > 0 ? kThroughputRed : tally.of(Status::pass) > 0 || tally.planned == 0 ? kAllGreen : kNoPass;
}

std::string clocks_warning(std::span<const ThroughputRow> rows) {
  const auto timed_on_gpu = [](const ThroughputRow& row) { return row.time_us_median.has_value() && row.arch.starts_with("sm_"); };
  const auto read = [](const ThroughputRow& row) { return row.sm_clock_mhz_median.has_value(); };
  if (std::none_of(rows.begin(), rows.end(), timed_on_gpu) || std::any_of(rows.begin(), rows.end(), read)) return "";
  return "clocks, power and temperature cannot be read (no NVML): samples under thermal slowdown are not noticed";
}

bool wholly_timed_before(const Job& job, const Case& c, const Candidate& kernel) {
  const std::vector<Lane> ways = ways_of(job.options, kernel.info.device != "cpu");
  return std::all_of(ways.begin(), ways.end(), [&](const Lane& way) { return timed_before(job, c, kernel, way) != nullptr; });
}

BenchResult bench_pairs(const Job& job, std::vector<PassedPair> pairs) {
  const Options& options = job.options;
  const NameFilter filter(options.benchmark_filter);
  BenchResult result;
  if (pairs.empty()) return result;

  const auto start = std::chrono::steady_clock::now();
  Timer timer(job);
  const auto matches = [&](const PassedPair& pair, const Lane& way) {
    return filter(benchmark_name(pair.candidate.info.name, timer.timing_of(way), way.cold, pair.planned.c()));
  };
  const auto wanted = [&](const PassedPair& pair, const Lane& way) {
    return matches(pair, way) && timed_before(job, pair.planned.c(), pair.candidate, way) == nullptr;
  };
  std::vector<ThroughputRow> told;              // all of them, also those of the run that is resumed
  std::vector<std::vector<PassedPair*>> cases;  // pairs of a case follow one another
  for (PassedPair& pair : pairs) {
    int64_t rows = 0;
    for (const Lane& way : timer.ways()) {
      if (!matches(pair, way)) continue;
      ++result.tally.planned;
      const ThroughputRow* before = timed_before(job, pair.planned.c(), pair.candidate, way);
      if (before == nullptr) ++rows;
      else told.push_back(*before), result.tally.add(before->status, is_red(before->status));
    }
    if (rows == 0) continue;
    if (cases.empty() || !(cases.back().front()->planned.c() == pair.planned.c())) cases.emplace_back();
    cases.back().push_back(&pair);
  }

  ReportWriter<SampleRow> samples(job.folder);
  ReportWriter<ThroughputRow> writer(job.folder);
  Progress progress(options.progress, result.tally.planned, "timed");
  fmt::print("\n{}\n", throughput_header());
  for (const auto& of_case : cases) {
    progress.advance(0, to_line(of_case.front()->planned.c()));
    const std::vector<Timer::Rows> timed = timer.time(of_case, wanted);
    if ((result.signal = interrupted()) != 0) break;
    progress.clear();
    for (const Timer::Rows& of_pair : timed) {
      if (of_pair.rows.empty()) continue;
      if (!of_pair.samples.empty()) samples.append(of_pair.samples);
      writer.append(of_pair.rows);
      for (const ThroughputRow& row : of_pair.rows) {
        tell_row(row);
        result.tally.add(row.status, is_red(row.status));
        told.push_back(row);
      }
      progress.advance(std::ssize(of_pair.rows), "");
    }
  }
  progress.clear();
  report_to_google_benchmark(options, job.folder, told);
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (const std::string text = clocks_warning(told); !text.empty()) tell(text);
  const Tally& tally = result.tally;
  fmt::print("\ntimed {} / planned {}{}  in {}\nreports: {}\n", tally.of(Status::pass), tally.planned, tally.others(), clock_text(result.wall_s),
             job.folder);
  if (result.signal != 0)
    fmt::print("interrupted by signal {}: {} of {} rows are in the report; go on with: {}\n", result.signal, tally.done(), tally.planned,
               options.go_on);
  std::fflush(stdout);
  return result;
}

}  // namespace smla
