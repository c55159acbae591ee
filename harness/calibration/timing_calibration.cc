// SPDX-License-Identifier: Apache-2.0
#include "harness/calibration/timing_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <random>

#include "reports/compare.h"
#include "reports/csv.h"
#include "reports/gate.h"

namespace smla {
namespace {

constexpr int kResamples = 300, kSweepPairs = 20;
const std::vector<std::string> kColumns{"device", "case", "kernel", "process", "run", "delay_frac", "copy", "sample", "time_us"};

/// A report of one row; `as` makes rows of a sweep differ.
TimedSet set_of(const CalibrationLane& lane, uint64_t as = 1) {
  Report<ThroughputRow> report{"calibration", {}, false};
  Report<SampleRow> samples{"calibration", {}, false};
  ThroughputRow row;
  row.run_id = fmt::format("{}.{}", lane.process, lane.run);
  row.c = parse_line(lane.case_line);
  row.c.seed = as;
  row.kernel = lane.kernel;
  row.timing = "event";
  row.cache = "cold";
  row.samples = std::ssize(lane.time_us);
  row.time_us_median = median(lane.time_us);
  for (size_t i = 0; i < lane.time_us.size(); ++i) {
    SampleRow sample;
    sample.run_id = row.run_id;
    sample.case_id = case_id(row.c);
    sample.kernel = row.kernel;
    sample.timing = row.timing;
    sample.cache = row.cache;
    sample.round = static_cast<int64_t>(i);
    sample.time_us = lane.time_us[i];
    samples.rows.push_back(std::move(sample));
  }
  report.rows.push_back(std::move(row));
  return make_timed(std::move(report), &samples);
}

/// How many pairs got which verdict.
struct Tally {
  int64_t pairs = 0, gate_red = 0;
  std::array<int64_t, std::size(Names<Verdict>::kAll)> verdicts{};
  void add(const TimedSet& a, const TimedSet& b) {
    const GateOptions gate;
    ++pairs;
    ++verdicts[static_cast<size_t>(compare(a, b, {.resamples = kResamples}).at(0).verdict)];
    gate_red += loses(compare(a, b, {.margin = gate.max_loss, .resamples = kResamples}).at(0), gate);
  }
  std::string of(Verdict v) const { return fmt::format("{}", verdicts[static_cast<size_t>(v)]); }
};

using ByCase = std::map<std::pair<std::string, std::string>, std::vector<const CalibrationLane*>>;
ByCase by_case(const std::vector<CalibrationLane>& lanes) {
  ByCase groups;
  for (const CalibrationLane& lane : lanes) groups[{lane.case_line, lane.kernel}].push_back(&lane);
  return groups;
}
bool same_run(const CalibrationLane& a, const CalibrationLane& b) { return a.process == b.process && a.run == b.run; }
double median_of(const std::vector<const CalibrationLane*>& lanes, double delay_frac) {
  std::vector<double> medians;
  for (const CalibrationLane* lane : lanes)
    if (lane->delay_frac == delay_frac) medians.push_back(median(lane->time_us));
  return median(medians);
}
std::string percent(double fraction) { return fmt::format("{:.3g}", 100 * fraction); }

template <class T>
T number(const std::string& cell, const std::string& at, const std::string& column) {
  T value{};
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size())
    throw UsageError(fmt::format("{}: column {}: \"{}\" is not a number", at, column, cell));
  return value;
}

}  // namespace

std::string calibration_csv(const std::vector<CalibrationLane>& lanes) {
  std::string text;
  for (const CalibrationLane& lane : lanes)
    for (size_t i = 0; i < lane.time_us.size(); ++i)
      text += csv_line({lane.device, lane.case_line, lane.kernel, fmt::format("{}", lane.process), fmt::format("{}", lane.run),
                        fmt::format("{:.9g}", lane.delay_frac), fmt::format("{}", lane.copy), fmt::format("{}", i),
                        fmt::format("{:.9g}", lane.time_us[i])});
  return csv_line(kColumns) + text;
}

std::vector<CalibrationLane> read_calibration(const std::string& path) {
  const Csv csv = read_csv(path);
  if (csv.header != kColumns) throw UsageError(path + ":1: not a calibration's samples");
  std::vector<CalibrationLane> lanes;
  for (size_t i = 0; i < csv.rows.size(); ++i) {
    const std::vector<std::string>& cells = csv.rows[i];
    const std::string at = fmt::format("{}:{}", path, i + 2);
    CalibrationLane lane{cells[0],
                         cells[1],
                         cells[2],
                         number<int>(cells[3], at, "process"),
                         number<int>(cells[4], at, "run"),
                         number<double>(cells[5], at, "delay_frac"),
                         number<int>(cells[6], at, "copy"),
                         {}};
    const auto is_last = [&](const CalibrationLane& last) {
      return last.case_line == lane.case_line && last.kernel == lane.kernel && same_run(last, lane) && last.delay_frac == lane.delay_frac &&
             last.copy == lane.copy;
    };
    if (lanes.empty() || !is_last(lanes.back())) lanes.push_back(std::move(lane));
    const double us = number<double>(cells[8], at, "time_us");
    if (!(us > 0)) throw UsageError(fmt::format("{}: column time_us: \"{}\" is not above 0", at, cells[8]));
    lanes.back().time_us.push_back(us);
  }
  return lanes;
}

Table aa_table(const std::vector<CalibrationLane>& lanes, int sweeps) {
  Table table{{"device", "case", "kernel", "median_us", "samples", "between", "run_medians_rel_sd_pct", "comparisons", "same", "faster", "slower",
               "ambiguous", "gate_red", "false_pct", "sweeps_of_20", "false_sweeps", "false_sweeps_pct"},
              {}};
  for (const auto& [key, group] : by_case(lanes)) {
    std::vector<const CalibrationLane*> plain;
    for (const CalibrationLane* lane : group)
      if (lane->delay_frac == 0) plain.push_back(lane);
    std::vector<TimedSet> sets;
    std::vector<double> log_medians;
    for (const CalibrationLane* lane : plain) {
      sets.push_back(set_of(*lane));
      if (lane->copy == 0) log_medians.push_back(std::log(median(lane->time_us)));
    }
    double mean = 0, square = 0;
    for (double x : log_medians) mean += x / static_cast<double>(log_medians.size());
    for (double x : log_medians) square += (x - mean) * (x - mean) / static_cast<double>(std::max<size_t>(1, log_medians.size() - 1));
    for (const bool within : {false, true}) {
      Tally count;
      std::vector<std::pair<size_t, size_t>> pairs;
      for (size_t i = 0; i < plain.size(); ++i)
        for (size_t j = i + 1; j < plain.size(); ++j)
          if (same_run(*plain[i], *plain[j]) == within) {
            count.add(sets[i], sets[j]);
            pairs.emplace_back(i, j);
          }
      if (pairs.empty()) continue;
      std::mt19937_64 random(1);
      int false_sweeps = 0;
      for (int sweep = 0; sweep < sweeps; ++sweep) {
        TimedSet a{{"a", {}, false}, {}}, b = a;
        for (uint64_t pair = 0; pair < kSweepPairs; ++pair) {
          const auto [i, j] = pairs[random() % pairs.size()];
          TimedSet from_a = set_of(*plain[i], pair + 1), from_b = set_of(*plain[j], pair + 1);
          a.report.rows.push_back(from_a.report.rows.at(0)), a.samples.merge(from_a.samples);
          b.report.rows.push_back(from_b.report.rows.at(0)), b.samples.merge(from_b.samples);
        }
        const auto compared = compare(a, b, {.resamples = kResamples});
        false_sweeps += std::any_of(compared.begin(), compared.end(),
                                    [](const Comparison& c) { return c.verdict == Verdict::slower || c.verdict == Verdict::faster; });
      }
      const int64_t wrong = count.verdicts[static_cast<size_t>(Verdict::faster)] + count.verdicts[static_cast<size_t>(Verdict::slower)];
      table.add({plain[0]->device, key.first, key.second, fmt::format("{:.4g}", std::exp(mean)), fmt::format("{}", plain[0]->time_us.size()),
                 within ? "lanes of a run" : "runs", percent(std::sqrt(square)), fmt::format("{}", count.pairs), count.of(Verdict::same),
                 count.of(Verdict::faster), count.of(Verdict::slower), count.of(Verdict::ambiguous), fmt::format("{}", count.gate_red),
                 percent(static_cast<double>(wrong) / static_cast<double>(count.pairs)), fmt::format("{}", sweeps), fmt::format("{}", false_sweeps),
                 percent(static_cast<double>(false_sweeps) / std::max(1, sweeps))});
    }
  }
  return table;
}

Table delay_table(const std::vector<CalibrationLane>& lanes) {
  Table table{{"device", "case", "kernel", "delay_pct", "measured_pct", "samples", "between", "comparisons", "slower", "ambiguous", "same", "faster",
               "slower_pct", "gate_red", "gate_red_pct"},
              {}};
  for (const auto& [key, group] : by_case(lanes)) {
    std::map<double, std::vector<const CalibrationLane*>> by_delay;
    for (const CalibrationLane* lane : group)
      if (lane->copy == 0) by_delay[lane->delay_frac].push_back(lane);
    if (!by_delay.contains(0)) continue;
    std::vector<TimedSet> plain;
    for (const CalibrationLane* lane : by_delay[0]) plain.push_back(set_of(*lane));
    for (const auto& [delay, delayed] : by_delay) {
      if (delay == 0) continue;
      for (const bool within : {false, true}) {
        Tally count;
        for (const CalibrationLane* lane : delayed) {
          const TimedSet b = set_of(*lane);
          for (size_t i = 0; i < plain.size(); ++i)
            if (same_run(*by_delay[0][i], *lane) == within) count.add(plain[i], b);
        }
        if (count.pairs == 0) continue;
        const auto share = [&](int64_t n) { return percent(static_cast<double>(n) / static_cast<double>(count.pairs)); };
        table.add({delayed[0]->device, key.first, key.second, percent(delay), percent(median_of(group, delay) / median_of(group, 0) - 1),
                   fmt::format("{}", delayed[0]->time_us.size()), within ? "lanes of a run" : "runs", fmt::format("{}", count.pairs),
                   count.of(Verdict::slower), count.of(Verdict::ambiguous), count.of(Verdict::same), count.of(Verdict::faster),
                   share(count.verdicts[static_cast<size_t>(Verdict::slower)]), fmt::format("{}", count.gate_red), share(count.gate_red)});
      }
    }
  }
  return table;
}

}  // namespace smla
