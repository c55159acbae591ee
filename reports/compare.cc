// SPDX-License-Identifier: Apache-2.0
#include "reports/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <tuple>
#include <unordered_map>

#include "reports/outcome.h"

namespace smla {
namespace {

constexpr int64_t kMinSamples = 5;
// NVML's clock comes in steps of 15 MHz, 0.8 % of 1980: from two steps on it tells. What share of the samples was power capped does not: the same
// share was seen with clocks 8 % and times 11 % apart, and 36 % against none with the same clocks and times. It is read behind a sample, when it may
// have risen again: times differed by up to the square of what it differed by.
constexpr double kClockShift = 0.01, kClockPower = 3;
// An empty launch differs from host to host and from driver to driver, by more than short kernels do.
constexpr double kLaunchShift_us = 0.5, kLaunchShare = 0.01;  // of the median; a shift beyond both tells
constexpr double kPowerZ = 0.8416;                            // z of 80 % power
// Two runs of one kernel differ by more than their own samples tell (memory placed anew, clocks): a share of the time, and a jitter that short
// kernels feel. Fitted to medians of runs that spread by 0.35 % at 92 us and 0.9 % at 13 us; 0.29 % at 112 us and 1.17 % at 14.6 us, of which the
// samples' own error is some 0.6 %, agree with it (run_medians_rel_sd_pct of reports/data/timing_aa.csv).
constexpr double kRunShare = 0.0033, kRunJitter_us = 0.11;

/// Standard deviation of log(median time) from run to run.
double run_error(const ThroughputRow& row) { return std::hypot(kRunShare, kRunJitter_us / *row.time_us_median); }

std::string sample_key(const std::string& run_id, const std::string& id, const std::string& kernel, const std::string& timing,
                       const std::string& cache) {
  return fmt::format("{} {} {} {} {}", run_id, id, kernel, timing, cache);
}
std::string sample_key(const ThroughputRow& row) { return sample_key(row.run_id, case_id(row.c), row.kernel, row.timing, row.cache); }

bool timed(const ThroughputRow* row) { return row != nullptr && row->status == Status::pass; }

/// Noise of one row's median, and what it was taken from.
struct Noise {
  double log_error = 0;
  std::string from;
  int64_t samples = 0;
  int64_t independent = 0;  // rounds, where there are several, else samples: what log_error was estimated from
};
Noise noise_of(const TimedSet& set, const ThroughputRow& row, int resamples) {
  Noise noise;
  noise.samples = row.samples.value_or(0);
  std::string unused;
  if (const auto found = set.samples.find(sample_key(row)); found != set.samples.end()) {
    int64_t count = 0;
    for (const auto& round : found->second) count += static_cast<int64_t>(round.size());
    if (count == noise.samples && count > 0) {
      noise.log_error = log_median_error(found->second, resamples);
      noise.from = "samples";
      noise.independent = found->second.size() > 1 ? std::ssize(found->second) : count;
      return noise;
    }
    unused = fmt::format(" (samples.csv holds {} of {})", count, noise.samples);
  }
  if (row.time_us_q1 && row.time_us_q3 && noise.samples > 0) {
    noise.log_error = log_median_error(Quartiles{*row.time_us_q1, *row.time_us_median, *row.time_us_q3}, noise.samples);
    noise.from = "quartiles" + unused;
    noise.independent = noise.samples;
  }
  return noise;
}

std::string device(const ThroughputRow& row) {
  return fmt::format("{} ({}, power limit {}, ECC {})", row.device_name, row.arch,
                     row.power_limit_w ? fmt::format("{:g} W", *row.power_limit_w) : "unknown", row.ecc ? (*row.ecc ? "on" : "off") : "unknown");
}

/// What else than the kernels differs, and by how much that can shift the ratio: a lower clock and a longer launch only make slower.
void note_conditions(Comparison& c) {
  const ThroughputRow &a = *c.a, &b = *c.b;
  std::vector<std::string> notes;
  const auto differs = [&](std::string note, double log_shift) {  // over 0: b may be slower for it
    notes.push_back(std::move(note));
    (log_shift > 0 ? c.seems_slower : c.seems_faster) *= std::exp(std::fabs(log_shift));
  };
  const double clock_a = a.sm_clock_mhz_median.value_or(0), clock_b = b.sm_clock_mhz_median.value_or(0);
  const double log_clocks = clock_a > 0 && clock_b > 0 ? std::log(clock_a / clock_b) : 0;
  if (std::fabs(log_clocks) > kClockShift)
    differs(fmt::format("another clock: {:.0f} and {:.0f} MHz; {:.0f} % and {:.0f} % of the samples were power capped", clock_a, clock_b,
                        100 * a.power_capped_frac.value_or(0), 100 * b.power_capped_frac.value_or(0)),
            kClockPower * log_clocks);
  else if ((clock_a > 0) != (clock_b > 0)) notes.push_back("the clock could be read in one of the two only: another one would not be seen");
  const double launch_us = a.launch_floor_us && b.launch_floor_us ? *b.launch_floor_us - *a.launch_floor_us : 0;
  if (std::fabs(launch_us) > std::max(kLaunchShift_us, kLaunchShare * *a.time_us_median))
    differs(fmt::format("another launch: an empty one took {:.3g} and {:.3g} us", *a.launch_floor_us, *b.launch_floor_us),
            2 * launch_us / std::min(*a.time_us_median, *b.time_us_median));
  if (a.clocks_locked.value_or(false) != b.clocks_locked.value_or(false)) {
    notes.push_back("another clock: locked in one of the two");
    c.seems_slower = c.seems_faster = std::numeric_limits<double>::infinity();
  }
  c.note = fmt::format("{}", fmt::join(notes, "; "));
}

/// Fills ratio, noise and notes of a matched pair. The verdict comes once the whole sweep is known.
void measure(Comparison& c, const TimedSet& a, const TimedSet& b, const CompareOptions& options) {
  if (device(*c.a) != device(*c.b))
    throw UsageError(fmt::format("not comparable: {} was measured on {} in {} and on {} in {}", to_line(c.a->c), device(*c.a), a.report.origin,
                                 device(*c.b), b.report.origin));
  c.ratio = *c.b->time_us_median / *c.a->time_us_median;
  const Noise noise_a = noise_of(a, *c.a, options.resamples), noise_b = noise_of(b, *c.b, options.resamples);
  note_conditions(c);
  if (const int64_t least = std::min(noise_a.samples, noise_b.samples); least < kMinSamples)
    c.note = fmt::format("{} samples are too few for an interval", least);
  else if (noise_a.from.empty() || noise_b.from.empty()) c.note = "neither samples nor quartiles: no interval";
  else {
    c.log_error = std::hypot(noise_a.log_error, noise_b.log_error);
    if (c.a->run_id != c.b->run_id) c.log_error = std::hypot(c.log_error, run_error(*c.a), run_error(*c.b));
    c.dof = static_cast<double>(std::max<int64_t>(1, std::min(noise_a.independent, noise_b.independent) - 1));
    c.interval_from = noise_a.from == noise_b.from ? noise_a.from : noise_a.from + " / " + noise_b.from;
  }
}

bool same_figure(const Measure& written, double value) {
  return !written || std::fabs(*written - value) <= 1e-8 * value;  // written with 9 digits
}

/// Refuses rows that their samples contradict, and notes what has no partner.
void hold_against_samples(TimedSet& set, const std::string& samples_origin) {
  std::set<std::string> rows;
  std::vector<std::string> alone;
  for (size_t i = 0; i < set.report.rows.size(); ++i) {
    const ThroughputRow& row = set.report.rows[i];
    rows.insert(sample_key(row));
    if (row.status != Status::pass) continue;
    const auto found = set.samples.find(sample_key(row));
    if (found == set.samples.end()) {
      alone.push_back(fmt::format("line {}", i + 2));
      continue;
    }
    std::vector<double> times;
    for (const auto& round : found->second) times.insert(times.end(), round.begin(), round.end());
    if (std::ssize(times) != row.samples) continue;  // some are lost: the interval then comes from the quartiles, and says so
    const Quartiles q = quartiles(times);
    for (const auto& [name, written, value] :
         {std::tuple{"time_us_q1", row.time_us_q1, q.q1}, {"time_us_median", row.time_us_median, q.median}, {"time_us_q3", row.time_us_q3, q.q3}})
      if (!same_figure(written, value))
        throw UsageError(fmt::format("{}column {}: {:.9g}, but its {} samples in {} give {:.9g}", set.report.at(i), name, *written, times.size(),
                                     samples_origin, value));
  }
  const auto note = [&](const std::string& where, const std::string& what, const std::vector<std::string>& which) {
    if (!which.empty()) set.notes.push_back(fmt::format("{}: {} {}, the first: {}", where, which.size(), what, which.front()));
  };
  note(set.report.origin, "rows without samples in " + samples_origin, alone);
  std::vector<std::string> orphans;
  for (const auto& [key, rounds] : set.samples)
    if (!rows.contains(key)) orphans.push_back(key);
  note(samples_origin, "measurements without a row in " + set.report.origin, orphans);
}

}  // namespace

std::string row_key(const ThroughputRow& row, bool any_kernel) {
  return fmt::format("{} {} {} {}", case_id(row.c), any_kernel ? "" : row.kernel, row.timing, row.cache);
}

TimedSet make_timed(Report<ThroughputRow> report, const Report<SampleRow>* samples) {
  TimedSet set{std::move(report), {}, {}};
  for (size_t i = 0; i < set.report.rows.size(); ++i) {
    const ThroughputRow& row = set.report.rows[i];
    if (row.status != Status::pass) continue;
    if (row.time_us_median.value_or(0) <= 0) throw UsageError(set.report.at(i) + "column time_us_median: a passed row needs a time above 0");
    if (row.time_us_q1.value_or(*row.time_us_median) > *row.time_us_median || row.time_us_q3.value_or(*row.time_us_median) < *row.time_us_median)
      throw UsageError(set.report.at(i) + "columns time_us_q1, time_us_median, time_us_q3 are not in ascending order");
  }
  if (samples == nullptr) return set;
  std::map<std::string, std::map<int64_t, std::vector<double>>> by_round;
  for (size_t i = 0; i < samples->rows.size(); ++i) {
    const SampleRow& row = samples->rows[i];
    if (row.discarded.value_or(false)) continue;
    if (row.time_us.value_or(0) <= 0) throw UsageError(samples->at(i) + "column time_us: a sample needs a time above 0");
    by_round[sample_key(row.run_id, row.case_id, row.kernel, row.timing, row.cache)][row.round.value_or(0)].push_back(*row.time_us);
  }
  for (auto& [key, rounds] : by_round)
    for (auto& [round, times] : rounds) set.samples[key].push_back(std::move(times));
  hold_against_samples(set, samples->origin);
  return set;
}

TimedSet read_timed(const std::string& file) {
  const std::filesystem::path beside = std::filesystem::path(file).parent_path() / file_name<SampleRow>();
  auto report = read_report<ThroughputRow>(file);
  if (!std::filesystem::exists(beside)) return make_timed(std::move(report), nullptr);
  const auto samples = read_report<SampleRow>(beside.string());
  return make_timed(std::move(report), &samples);
}

TimedSet read_timed(const std::vector<std::string>& folders) {
  TimedSet all;
  for (const std::string& folder : folders) {
    TimedSet one = read_timed(fmt::format("{}/{}", folder, file_name<ThroughputRow>()));
    append(all.report, std::move(one.report));
    all.samples.merge(one.samples);
    all.notes.insert(all.notes.end(), one.notes.begin(), one.notes.end());
  }
  return all;
}

TimedSet only_kernel(const TimedSet& set, const std::string& kernel) {
  TimedSet one = set;
  one.report.rows.clear();
  std::vector<std::string> known;
  for (const ThroughputRow& row : set.report.rows) {
    if (row.kernel == kernel) one.report.rows.push_back(row);
    if (std::find(known.begin(), known.end(), row.kernel) == known.end()) known.push_back(row.kernel);
  }
  if (one.report.rows.empty()) {
    const std::vector<std::string_view> names(known.begin(), known.end());
    throw_unknown_value("kernel", kernel, names.data(), names.size());
  }
  return one;
}

std::vector<Comparison> compare(const TimedSet& a, const TimedSet& b, const CompareOptions& options) {
  std::vector<Comparison> all;
  std::unordered_map<std::string, size_t> index;
  for (const ThroughputRow* row : latest(a.report.rows)) {
    index[row_key(*row, options.any_kernel)] = all.size();
    all.push_back({.a = row});
  }
  for (const ThroughputRow* row : latest(b.report.rows)) {
    const auto found = index.find(row_key(*row, options.any_kernel));
    if (found == index.end()) all.push_back({.b = row});
    else all[found->second].b = row;
  }

  std::vector<double> p;
  std::vector<Comparison*> tested;
  for (Comparison& c : all) {
    const bool has_a = timed(c.a), has_b = timed(c.b);
    if (!has_a || !has_b) {
      c.verdict = has_a ? Verdict::missing : has_b ? Verdict::fresh : Verdict::ambiguous;
      const ThroughputRow* other = has_a ? c.b : c.a;
      if (other != nullptr) c.note = fmt::format("{}: {}", name_of(other->status), other->detail);
      continue;
    }
    measure(c, a, b, options);
    if (c.interval_from.empty()) continue;
    const double beyond = std::fabs(std::log(*c.ratio)) - std::log1p(options.margin);
    p.push_back(c.log_error > 0 ? std::min(1.0, 2 * student_cdf(-beyond / c.log_error, c.dof)) : beyond > 0 ? 0.0 : 1.0);
    tested.push_back(&c);
  }
  const std::vector<double> levels = holm_levels(p, options.alpha);
  for (size_t i = 0; i < tested.size(); ++i) {
    Comparison& c = *tested[i];
    const double z = student_quantile(1 - levels[i] / 2, c.dof), reach = z * c.log_error;
    c.level = 1 - levels[i];
    c.ratio_lo = *c.ratio * std::exp(-reach);
    c.ratio_hi = *c.ratio * std::exp(reach);
    c.detectable = (1 + options.margin) * std::exp((z + kPowerZ) * c.log_error) - 1;
    const double above = 1 + options.margin, alike = 1 + std::max(options.margin, options.same);
    c.verdict = *c.ratio_lo > above * c.seems_slower                                             ? Verdict::slower
                : *c.ratio_hi < 1 / (above * c.seems_faster)                                     ? Verdict::faster
                : *c.ratio_lo >= c.seems_slower / alike && *c.ratio_hi <= alike / c.seems_faster ? Verdict::same
                                                                                                 : Verdict::ambiguous;
  }
  return all;
}

std::string interval_method(const std::vector<Comparison>& comparisons, const CompareOptions& options) {
  const auto pairs = std::count_if(comparisons.begin(), comparisons.end(), [](const Comparison& c) { return c.level.has_value(); });
  const auto shares_a_cpu = [](const Comparison& c) { return c.ratio && c.a->run_id != c.b->run_id && c.a->arch.starts_with("cpu"); };
  std::string text = "intervals: Student's t on log(ratio)";
  if (pairs <= 1) text += fmt::format(", {:g} %", 100 * (1 - options.alpha));
  else
    text += fmt::format(
        "; {} pairs share a {:g} % chance of one false verdict (Holm), so the level of each, {:g} to {:.4g} %, depends on the margin, {:g} %, and on "
        "the other pairs",
        pairs, 100 * options.alpha, 100 * (1 - options.alpha), 100 * (1 - options.alpha / static_cast<double>(pairs)), 100 * options.margin);
  if (std::any_of(comparisons.begin(), comparisons.end(), shares_a_cpu))
    text += ". Not in them: what else the CPU did during one of two runs; compare kernels of one run where it is shared";
  return text;
}

std::vector<GeomeanRow> geomeans(const std::vector<Comparison>& comparisons) {
  std::map<std::array<std::string, 4>, std::vector<double>> groups;
  for (const Comparison& c : comparisons)
    if (c.ratio) groups[{c.a->kernel, c.b->kernel, c.a->timing, c.a->cache}].push_back(*c.ratio);
  std::vector<GeomeanRow> rows;
  for (const auto& [key, ratios] : groups) rows.push_back({key[0], key[1], key[2], key[3], ratios.size(), geomean(ratios)});
  return rows;
}

std::vector<BestKernel> best_kernels(const TimedSet& set, int resamples) {
  std::vector<BestKernel> all;
  std::unordered_map<std::string, size_t> index;
  for (const ThroughputRow* row : latest(set.report.rows)) {
    if (!timed(row)) continue;
    const auto [at, first] = index.try_emplace(row_key(*row, true), all.size());
    if (first) all.emplace_back();
    BestKernel& b = all[at->second];
    if (b.best == nullptr || *row->time_us_median < *b.best->time_us_median) b = {row, b.best};
    else if (b.next == nullptr || *row->time_us_median < *b.next->time_us_median) b.next = row;
  }
  for (BestKernel& b : all) {
    if (b.next == nullptr) continue;
    const Noise best = noise_of(set, *b.best, resamples), next = noise_of(set, *b.next, resamples);
    const int64_t independent = std::max<int64_t>(2, std::min(best.independent, next.independent));
    const double z = student_quantile(0.975, static_cast<double>(independent - 1));
    b.clear = !best.from.empty() && !next.from.empty() && std::min(best.samples, next.samples) >= kMinSamples &&
              std::log(*b.next->time_us_median / *b.best->time_us_median) > z * std::hypot(best.log_error, next.log_error);
  }
  return all;
}

Table comparison_table(const std::vector<Comparison>& comparisons) {
  Table table{{"case", "kernel", "timing", "cache", "a_us", "b_us", "ratio", "ratio_lo", "ratio_hi", "level_pct", "verdict", "detectable_pct",
               "interval_from", "speedup_vs_dense", "dense_kernel", "dense_roof_us", "note"},
              {}};
  const auto number = [](const Measure& v) { return v ? fmt::format("{:.5g}", *v) : std::string(); };
  const auto percent = [&](const Measure& v) { return number(v ? Measure{100 * *v} : v); };
  for (const Comparison& c : comparisons) {
    const ThroughputRow& row = c.any();
    const std::string kernel = c.a != nullptr && c.b != nullptr && c.a->kernel != c.b->kernel ? c.a->kernel + " -> " + c.b->kernel : row.kernel;
    table.add({to_line(row.c), kernel, row.timing, row.cache, timed(c.a) ? number(c.a->time_us_median) : "",
               timed(c.b) ? number(c.b->time_us_median) : "", number(c.ratio), number(c.ratio_lo), number(c.ratio_hi), percent(c.level),
               std::string(name_of(c.verdict)), percent(c.detectable), c.interval_from, number(row.speedup_vs_dense), row.dense_kernel,
               number(row.dense_roof_us), c.note});
  }
  return table;
}

Table geomean_table(const std::vector<GeomeanRow>& means) {
  Table table{{"kernel_a", "kernel_b", "timing", "cache", "pairs", "geomean_ratio"}, {}};
  for (const GeomeanRow& row : means)
    table.add({row.kernel_a, row.kernel_b, row.timing, row.cache, fmt::format("{}", row.pairs), fmt::format("{:.5g}", row.ratio)});
  return table;
}

Table best_table(const std::vector<BestKernel>& best) {
  Table table{{"case", "timing", "cache", "best", "time_us", "next", "next_over_best", "clear"}, {}};
  for (const BestKernel& b : best)
    table.add({to_line(b.best->c), b.best->timing, b.best->cache, b.best->kernel, fmt::format("{:.5g}", *b.best->time_us_median),
               b.next ? b.next->kernel : "", b.next ? fmt::format("{:.5g}", *b.next->time_us_median / *b.best->time_us_median) : "",
               b.next ? (b.clear ? "true" : "false") : ""});
  return table;
}

}  // namespace smla
