// SPDX-License-Identifier: Apache-2.0
#include "harness/sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "harness/bench.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
#include "harness/lanes.h"
#include "harness/progress.h"
#include "harness/rerun.h"
#include "harness/rows.h"
#include "harness/table.h"
#include "harness/worker/process.h"
#include "reports/outcome.h"
#include "reports/report_file.h"

namespace smla {

int64_t Tally::done() const { return std::accumulate(by_status.begin(), by_status.end(), int64_t{0}); }

void Tally::add(Status status, bool is_red_pair) {
  ++by_status[static_cast<size_t>(status)];
  red += is_red_pair;
}

std::string Tally::others() const {
  std::string text;
  for (size_t i = 0; i < by_status.size(); ++i)
    if (static_cast<Status>(i) != Status::pass && by_status[i] > 0) text += fmt::format(", {} {}", by_status[i], name_of(static_cast<Status>(i)));
  if (done() < planned) text += fmt::format(", {} not run", planned - done());
  return text;
}

int SweepResult::exit_status() const {
  if (signal != 0) return 128 + signal;
  if (tally.red > 0) return kCorrectnessRed;
  return tally.of(Status::pass) > 0 ? kAllGreen : kNoPass;
}

JudgeOptions judge_options(const Job& job, const std::vector<size_t>& wanted_checks) {
  const Options& options = job.options;
  JudgeOptions judge;
  judge.checks = wanted_checks;
  judge.oracle_rows = options.oracle_rows;
  judge.determinism = options.determinism;
  judge.accept = options.accept;
  judge.case_timeout_s = options.case_timeout_s;
  judge.threads = options.threads;
  judge.rerun = rerun_of(options);
  judge.first_launches = std::make_shared<FirstLaunches>();
  judge.twins = job.session.all();
  return judge;
}

namespace {

PassedPair passed_pair(const PlannedCase& planned, const Candidate& candidate, const PairResult& pair, int64_t valid_keys) {
  return {planned, candidate,
          PassedPair::Bits{pair.base.out_hash.at(0), pair.base.lse_hash.empty() ? 0 : pair.base.lse_hash[0], pair.evidence.has_lse, pair.contract},
          valid_keys};
}

bool is_green(const PairResult& pair) { return pair.status() == Status::pass && !pair.red; }

/// The line of a pair; if it is not green the reason; if it is red what asks it again, and where it was captured to.
void tell_pair(const PlannedCase& planned, const PairResult& pair, int64_t valid_keys, const std::string& dumped) {
  fmt::print("{}\n", accuracy_line(planned, pair));
  if (!is_green(pair)) fmt::print("            {}{}\n", pair.expected.empty() ? "" : pair.expected + "; ", pair.decision.detail());
  if (const Decision& d = pair.decision; d.out != Status::pass && !d.lse_detail.empty() && d.lse_detail != d.out_detail)
    fmt::print("            {}\n", d.lse_detail);
  if (is_green(pair) && valid_keys == 0) fmt::print("            no row of this case has a key: zeros and the lse of empty rows were all it asked\n");
  if (pair.red) fmt::print("            rerun: {}\n", pair.repro);
  if (!dumped.empty()) fmt::print("            {}\n", dumped);
}

void add(TimeShares& sum, const TimeShares& more) { std::transform(sum.begin(), sum.end(), more.begin(), sum.begin(), std::plus<>()); }

}  // namespace

SweepResult sweep_accuracy(const Job& job, bool write) {
  watch_interrupts();
  const Options& options = job.options;
  Timeline timeline;
  JudgeOptions judge = judge_options(job, job.checks);
  judge.timeline = &timeline;
  std::optional<ReportWriter<AccuracyRow>> writer;
  if (write) writer.emplace(job.folder);

  const auto start = std::chrono::steady_clock::now();
  SweepResult result;
  result.tally.planned = static_cast<int64_t>(job.plan.size() * job.kernels.size());
  // A pair that the resumed run has judged (or only times, and has timed) counts as it ended then.
  const auto ended_before = [&](const PlannedCase& planned, const Candidate& kernel) -> std::optional<Status> {
    if (!write) return wholly_timed_before(job, planned.c(), kernel) ? std::optional(Status::pass) : std::nullopt;
    const Outcome* before = job.earlier.judged(planned.c(), kernel.info.name);
    return before ? std::optional(before->status()) : std::nullopt;
  };
  std::vector<Asked> asked;
  for (const PlannedCase& planned : job.plan) {
    std::vector<size_t> kernels;
    for (size_t k = 0; k < job.kernels.size(); ++k) {
      const Candidate& kernel = job.kernels[k];
      const auto before = ended_before(planned, kernel);
      if (!before) {
        kernels.push_back(k);
        continue;
      }
      std::string expected;
      result.tally.add(*before, is_red(*before, kernel.info.name, planned.suite_case.expect, &expected));
      ++result.resumed;
      if (!expected.empty()) result.unexpected[pair_key_of(planned.c(), kernel.info.name)] = expected;
      else if (*before == Status::pass) result.passed.push_back({planned, kernel, {}, {}});
    }
    if (!kernels.empty()) asked.push_back({&planned, std::move(kernels)});
  }
  Progress progress(options.progress, result.tally.planned - result.resumed, "checked");

  bool header = false;
  Lanes lanes(job, judge, asked);
  for (size_t i = 0; i < asked.size(); ++i) {
    const PlannedCase& planned = *asked[i].planned;
    progress.advance(0, to_line(planned.c()));
    const std::optional<Answered> answered = lanes.wait_for(i);
    if (!answered) continue;  // Ctrl-C came first; of those that ran beside it some may have ended
    {
      const Doing note(&timeline, Activity::report);
      progress.clear();
      for (size_t k = 0; k < answered->result.pairs.size(); ++k) {
        const PairResult& pair = answered->result.pairs[k];
        if (pair.left_out) continue;
        result.tally.add(pair.status(), pair.red);
        const std::vector<AccuracyRow> rows = accuracy_rows(job.run, planned, answered->result, pair);
        if (writer) writer->append(rows);
        if (!pair.expected.empty()) result.unexpected[pair_key(rows.front())] = pair.expected;
        if (options.verbose || pair.red || (is_green(pair) && !options.quiet)) {
          if (!std::exchange(header, true)) fmt::print("{}\n", accuracy_header());
          tell_pair(planned, pair, answered->result.valid_keys, answered->dumped[k]);
        }
        if (is_green(pair)) result.passed.push_back(passed_pair(planned, job.kernels[asked[i].kernels[k]], pair, answered->result.valid_keys));
      }
      std::fflush(stdout);
      progress.advance(std::ssize(answered->result.pairs), "");
    }
    add(result.spent, timeline.settle(lanes.earliest_ns()));
  }
  lanes.end();
  add(result.spent, timeline.settle(steady_now_ns()));
  result.signal = interrupted();
  result.workers_peak_bytes = lanes.peak_bytes();
  progress.clear();
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Decision judge_again(const Job& job, PassedPair& pair) {
  const CaseResult of_case = judge_case(pair.planned, {pair.candidate}, judge_options(job, {}));
  if (of_case.pairs.empty()) return {};
  const PairResult& judged = of_case.pairs[0];
  pair.valid_keys = of_case.valid_keys;
  if (judged.status() == Status::pass) pair = passed_pair(pair.planned, pair.candidate, judged, of_case.valid_keys);
  return judged.decision;
}

void print_tail(const SweepResult& result, const Job& job) {
  const Tally& tally = result.tally;
  fmt::print("\npassed {} / planned {}{}  in {}\n", tally.of(Status::pass), tally.planned, tally.others(), clock_text(result.wall_s));
  if (result.resumed > 0) fmt::print("resumed: {} of them were in the report\n", result.resumed);
  if (job.options.verbose) {
    std::string text;
    double harness_s = result.wall_s, other_s = result.wall_s;
    for (size_t i = 0; i < kActivities; ++i) {
      const double s = result.spent[i] / 1e3;
      other_s -= s;
      if (i < kHarnessOwn) harness_s -= s, text += fmt::format(" {} {:.2f} s,", kActivityNames[i], s);
    }
    fmt::print("time:{} harness {:.2f} s ({:.1f} %) of {:.2f} s\n", text, harness_s, 100 * harness_s / result.wall_s, result.wall_s);
    text.clear();
    for (size_t i = kHarnessOwn; i < kActivities; ++i) text += fmt::format(" {} {:.2f},", kActivityNames[i], result.spent[i] / 1e3);
    fmt::print("of the harness:{} other {:.2f}\n", text, other_s);
    fmt::print("memory at its peak: {} MiB here, {} MiB in workers\n", peak_bytes(getpid()) >> 20, result.workers_peak_bytes >> 20);
  }
  const bool no_streams = std::all_of(job.kernels.begin(), job.kernels.end(), [](const Candidate& kernel) { return kernel.info.device == "cpu"; });
  std::string idle;
  for (size_t check : job.checks)
    if (checks()[check].needs_streams && no_streams) idle += fmt::format(" {}", checks()[check].name);
  if (!idle.empty()) fmt::print("not applicable to CPU kernels, which have no streams:{}\n", idle);
  fmt::print("reports: {}\n", job.folder);
  if (result.signal != 0)
    fmt::print("interrupted by signal {}: {} of {} pairs are in the report; go on with: {}\n", result.signal, tally.done(), tally.planned,
               job.options.go_on);
  std::fflush(stdout);
}

}  // namespace smla
