// SPDX-License-Identifier: Apache-2.0
#include "harness/sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>

#include "harness/bench.h"
#include "harness/capture/captured_call.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
#include "harness/progress.h"
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
  judge.repro_flags = reproducer_flags(options);
  judge.twins = job.session.all();
  return judge;
}

namespace {

PassedPair passed_pair(const PlannedCase& planned, const Candidate& candidate, const PairResult& pair, const CaseResult& about) {
  return {planned, candidate,
          PassedPair::Bits{pair.base.out_hash.at(0), pair.base.lse_hash.empty() ? 0 : pair.base.lse_hash[0], pair.evidence.has_lse, pair.contract},
          about};
}

/// Runs a pair that failed once more and captures it. What to tell of that.
std::string dump(const Job& job, const PlannedCase& planned, const Candidate& candidate) {
  const std::filesystem::path file =
      std::filesystem::path(job.folder) / "failed" / fmt::format("{}.{}.safetensors", case_id(planned.c()), candidate.info.name);
  try {
    std::filesystem::create_directories(file.parent_path());
    const Inputs in = make_inputs(planned.c());
    const RunReply answer = run_all_rows(candidate, in, job.options);
    if (answer.status != Status::pass) return fmt::format("not captured: {} when it ran again: {}", name_of(answer.status), answer.detail);
    write_captured_call(file, in, candidate.info.name, answer);
    return fmt::format("captured: smla replay {}", shell_quote(file));
  } catch (const std::exception& error) { return fmt::format("not captured: {}", error.what()); }
}

}  // namespace

SweepResult sweep_accuracy(const Job& job, bool write) {
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
  for (const PlannedCase& planned : job.plan)
    for (const Candidate& kernel : job.kernels)
      if (const auto before = ended_before(planned, kernel)) {
        std::string expected;
        result.tally.add(*before, is_red(*before, kernel.info.name, planned.suite_case.expect, &expected));
        if (!expected.empty()) result.unexpected[pair_key_of(planned.c(), kernel.info.name)] = expected;
        ++result.resumed;
      }
  Progress progress(options.progress, result.tally.planned - result.resumed, "checked");
  bool header = false;
  for (const PlannedCase& planned : job.plan) {
    std::vector<Candidate> kernels;
    for (const Candidate& kernel : job.kernels) {
      const auto before = ended_before(planned, kernel);
      if (!before) kernels.push_back(kernel);
      else if (*before == Status::pass && !result.unexpected.contains(pair_key_of(planned.c(), kernel.info.name)))
        result.passed.push_back({planned, kernel, {}, {}});
    }
    if (kernels.empty()) continue;
    progress.advance(0, to_line(planned.c()));
    CaseResult of_case = judge_case(planned, kernels, judge);
    if ((result.signal = interrupted()) != 0) break;
    const std::vector<PairResult> pairs = std::move(of_case.pairs);
    progress.clear();
    std::optional<Doing> reporting(std::in_place, &timeline, Activity::report);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const PairResult& pair = pairs[i];
      result.tally.add(pair.status(), pair.red);
      const std::vector<AccuracyRow> rows = accuracy_rows(job.run, planned, of_case, pair);
      if (writer) writer->append(rows);
      if (!pair.expected.empty()) result.unexpected[pair_key(rows.front())] = pair.expected;
      const bool green = pair.status() == Status::pass && !pair.red, neutral = !green && !pair.red;
      if (options.verbose || pair.red || (green && !options.quiet)) {
        if (!header) fmt::print("{}\n", accuracy_header());
        header = true;
        fmt::print("{}\n", accuracy_line(planned, pair));
        if (!green) fmt::print("            {}{}\n", pair.expected.empty() ? "" : pair.expected + "; ", pair.decision.detail());
        if (!green && !neutral) fmt::print("            rerun: {}\n", pair.repro);
        if (options.dump_failed && pair.status() == Status::fail) fmt::print("            {}\n", dump(job, planned, kernels[i]));
      }
      if (green) result.passed.push_back(passed_pair(planned, kernels[i], pair, of_case));
    }
    std::fflush(stdout);
    progress.advance(static_cast<int64_t>(pairs.size()), "");
    reporting.reset();
    const TimeShares of_this = shares(timeline.take());
    std::transform(result.spent.begin(), result.spent.end(), of_this.begin(), result.spent.begin(), std::plus<>());
  }
  progress.clear();
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Decision judge_again(const Job& job, PassedPair& pair) {
  CaseResult of_case = judge_case(pair.planned, {pair.candidate}, judge_options(job, {}));
  const std::vector<PairResult> pairs = std::move(of_case.pairs);
  if (pairs.empty()) return {};
  pair.about = of_case;
  if (pairs[0].status() == Status::pass) pair = passed_pair(pair.planned, pair.candidate, pairs[0], of_case);
  return pairs[0].decision;
}

void print_tail(const SweepResult& result, const Job& job) {
  const Tally& tally = result.tally;
  std::string rest;
  for (size_t i = 0; i < tally.by_status.size(); ++i)
    if (static_cast<Status>(i) != Status::pass && tally.by_status[i] > 0)
      rest += fmt::format(", {} {}", tally.by_status[i], name_of(static_cast<Status>(i)));
  if (tally.done() < tally.planned) rest += fmt::format(", {} not run", tally.planned - tally.done());
  fmt::print("\npassed {} / planned {}{}  in {}\n", tally.of(Status::pass), tally.planned, rest, clock_text(result.wall_s));
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
    fmt::print("memory at its peak: {} MiB here, {} MiB in the worker\n", peak_bytes(getpid()) >> 20, job.session.workers_peak_bytes() >> 20);
  }
  const bool no_streams = std::all_of(job.kernels.begin(), job.kernels.end(), [](const Candidate& kernel) { return kernel.info.device == "cpu"; });
  std::string idle;
  for (size_t check : job.checks)
    if (checks()[check].needs_streams && no_streams) idle += fmt::format(" {}", checks()[check].name);
  if (!idle.empty()) fmt::print("not applicable to CPU kernels, which have no streams:{}\n", idle);
  fmt::print("reports: {}\n", job.folder);
  if (result.signal != 0)
    fmt::print("interrupted by signal {}: {} of {} pairs are in the report; go on with: {}\n", result.signal, tally.done(), tally.planned,
               resume_command(job.options));
  std::fflush(stdout);
}

}  // namespace smla
