// SPDX-License-Identifier: Apache-2.0
#include "harness/sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "cases/pairwise.h"
#include "harness/bench.h"
#include "harness/capture/captured_call.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
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
  judge.twins = job.session.all();
  return judge;
}

namespace {

PassedPair passed_pair(const PlannedCase& planned, const Candidate& candidate, const PairResult& pair, int64_t valid_keys) {
  return {planned, candidate,
          PassedPair::Bits{pair.base.out_hash.at(0), pair.base.lse_hash.empty() ? 0 : pair.base.lse_hash[0], pair.evidence.has_lse, pair.contract},
          valid_keys};
}

/// Runs a pair that failed once more and captures it. What to tell of that.
std::string dump(const Job& job, const PlannedCase& planned, const Candidate& candidate, const PairResult& pair) {
  Evidence numbers;
  numbers.figures = pair.evidence.figures;
  numbers.has_lse = pair.evidence.has_lse;
  if (decide(numbers).status() == Status::pass) return "not captured: its numbers are right, and a replay would show nothing of what the checks saw";
  const std::filesystem::path file =
      std::filesystem::path(job.folder) / "failed" / fmt::format("{}.{}.safetensors", case_id(planned.c()), candidate.info.name);
  try {
    std::filesystem::create_directories(file.parent_path());
    const Inputs in = make_inputs(planned.c());
    const RunReply answer = run_all_rows(candidate, in, job.options);
    if (answer.status != Status::pass) return fmt::format("not captured: {} when it ran again: {}", name_of(answer.status), answer.detail);
    write_captured_call(file, in, candidate.info.name, answer);
    return fmt::format("captured: {} replay {}", job.options.program, shell_quote(file));
  } catch (const std::exception& error) { return fmt::format("not captured: {}", error.what()); }
}

/// A case, and which of the job's kernels are asked it.
struct Asked {
  const PlannedCase* planned;
  std::vector<size_t> kernels;
};
struct Answered {
  CaseResult result;
  std::vector<std::string> dumped;  // of each pair: what to tell of its capture, if it was captured
};

void add(TimeShares& sum, const TimeShares& more) { std::transform(sum.begin(), sum.end(), more.begin(), sum.begin(), std::plus<>()); }

/// Two cases are under way at a time, so that cores are not idle: while one's rows are judged, another's kernels run. Built-in CPU kernels have two
/// sets of workers, so that both may run, unless the tensors of both are large. Answers are waited for in the order of the cases.
class Lanes {
 public:
  Lanes(const Job& job, const JudgeOptions& judge, const std::vector<Asked>& asked) : job_(job), asked_(asked), answers_(asked.size()) {
    const bool built_in_cpu = job.options.plugin.empty() && job.options.pythons.empty() && job.options.threads == 0 &&
                              std::all_of(job.kernels.begin(), job.kernels.end(), [](const Candidate& k) { return k.info.device == "cpu"; });
    if (built_in_cpu && asked.size() > 1) beside_.emplace(job.options);
    for (size_t i = 0; i < kLanes; ++i) {
      judge_[i] = judge;
      kernels_[i] = job.kernels;
      if (i == 0 || !beside_) continue;
      judge_[i].twins = beside_->all();
      for (Candidate& kernel : kernels_[i])
        kernel = *std::find_if(judge_[i].twins.begin(), judge_[i].twins.end(), [&](const Candidate& c) { return c.info.name == kernel.info.name; });
    }
    for (size_t i = 0; i < kLanes; ++i) threads_[i] = std::jthread([this, i] { work(i); });
  }
  ~Lanes() { end(); }

  /// The answer to asked[i]; none if Ctrl-C came before it. Throws what its judge threw. To be called in order.
  std::optional<Answered> wait_for(size_t i) {
    std::unique_lock lock(mutex_);
    waited_for_ = i;
    changed_.notify_all();
    changed_.wait(lock, [&] { return answers_[i].done; });
    if (answers_[i].error) std::rethrow_exception(answers_[i].error);
    return std::exchange(answers_[i].answered, {});
  }
  /// Nothing that is still under way, or to come, began before.
  int64_t earliest_ns() {
    const std::lock_guard lock(mutex_);
    return std::min(steady_now_ns(), *std::min_element(since_ns_.begin(), since_ns_.end()));
  }
  /// No further case begins; those under way are waited for.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      next_ = asked_.size();
      changed_.notify_all();
    }
    for (std::jthread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  int64_t peak_bytes() const { return job_.session.workers_peak_bytes() + (beside_ ? beside_->workers_peak_bytes() : 0); }

 private:
  static constexpr size_t kLanes = 2, kAhead = 128;  // so many cases may be answered before one that takes long
  static constexpr double kLarge_bytes = 16 << 20;   // of a case's tensors
  static constexpr int64_t kIdle = std::numeric_limits<int64_t>::max();

  struct Answer {
    bool done = false;
    std::optional<Answered> answered;
    std::exception_ptr error;
  };

  static double bytes_about(const Case& c) {
    return pairwise::pool_bytes(c) + static_cast<double>(c.tokens()) * (2.0 * c.h_q * (c.d_qk + c.d_v) + 4.0 * c.topk);
  }

  void work(size_t lane) {
    for (;;) {
      size_t i;
      {
        std::unique_lock lock(mutex_);
        since_ns_[lane] = kIdle;
        changed_.wait(lock, [&] { return next_ >= asked_.size() || next_ < waited_for_ + kAhead; });
        if (next_ >= asked_.size()) return;
        i = next_++;
        since_ns_[lane] = steady_now_ns();
      }
      Answer answer;
      try {
        answer.answered = ask(lane, asked_[i]);
      } catch (...) { answer.error = std::current_exception(); }
      answer.done = true;
      const std::lock_guard lock(mutex_);
      answers_[i] = std::move(answer);
      changed_.notify_all();
    }
  }

  std::optional<Answered> ask(size_t lane, const Asked& asked) {
    std::vector<Candidate> kernels;
    for (size_t k : asked.kernels) kernels.push_back(kernels_[lane][k]);
    std::mutex& own = workers_[beside_ ? lane : 0];
    std::function<CaseResult()> judge;
    {
      std::unique_lock<std::mutex> large(large_, std::defer_lock);
      if (bytes_about(asked.planned->c()) > kLarge_bytes) large.lock();
      const std::lock_guard lock(own);
      if (interrupted()) return {};
      judge = run_case(*asked.planned, kernels, judge_[lane]);
    }
    if (!judge) return {};
    Answered answered{judge(), {}};
    for (size_t k = 0; k < kernels.size(); ++k) {
      std::string& text = answered.dumped.emplace_back();
      const PairResult& pair = answered.result.pairs[k];
      if (!job_.options.dump_failed || pair.left_out || pair.status() != Status::fail || interrupted()) continue;
      const std::lock_guard lock(own);
      text = dump(job_, *asked.planned, kernels[k], pair);
    }
    return answered;
  }

  const Job& job_;
  const std::vector<Asked>& asked_;
  std::optional<Session> beside_;  // the second set of workers
  std::array<JudgeOptions, kLanes> judge_;
  std::array<std::vector<Candidate>, kLanes> kernels_;
  std::array<std::mutex, kLanes> workers_;  // whose kernels run
  std::mutex large_;                        // one case with large tensors at a time
  std::mutex mutex_;                        // of what follows
  std::condition_variable changed_;
  std::vector<Answer> answers_;
  size_t next_ = 0, waited_for_ = 0;
  std::array<int64_t, kLanes> since_ns_{};
  std::array<std::jthread, kLanes> threads_;  // last: what they work on must outlive them
};

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
  for (const PlannedCase& planned : job.plan)
    for (const Candidate& kernel : job.kernels)
      if (const auto before = ended_before(planned, kernel)) {
        std::string expected;
        result.tally.add(*before, is_red(*before, kernel.info.name, planned.suite_case.expect, &expected));
        if (!expected.empty()) result.unexpected[pair_key_of(planned.c(), kernel.info.name)] = expected;
        ++result.resumed;
      }
  Progress progress(options.progress, result.tally.planned - result.resumed, "checked");
  std::vector<Asked> asked;
  for (const PlannedCase& planned : job.plan) {
    std::vector<size_t> kernels;
    for (size_t k = 0; k < job.kernels.size(); ++k) {
      const auto ended = ended_before(planned, job.kernels[k]);
      if (!ended) kernels.push_back(k);
      else if (*ended == Status::pass && !result.unexpected.contains(pair_key_of(planned.c(), job.kernels[k].info.name)))
        result.passed.push_back({planned, job.kernels[k], {}, {}});
    }
    if (!kernels.empty()) asked.push_back({&planned, std::move(kernels)});
  }

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
        const bool green = pair.status() == Status::pass && !pair.red, neutral = !green && !pair.red;
        if (options.verbose || pair.red || (green && !options.quiet)) {
          if (!header) fmt::print("{}\n", accuracy_header());
          header = true;
          fmt::print("{}\n", accuracy_line(planned, pair));
          if (!green) fmt::print("            {}{}\n", pair.expected.empty() ? "" : pair.expected + "; ", pair.decision.detail());
          if (const Decision& d = pair.decision; d.out != Status::pass && !d.lse_detail.empty() && d.lse_detail != d.out_detail)
            fmt::print("            {}\n", d.lse_detail);
          if (!green && !neutral) fmt::print("            rerun: {}\n", pair.repro);
          if (!answered->dumped[k].empty()) fmt::print("            {}\n", answered->dumped[k]);
        }
        if (green) result.passed.push_back(passed_pair(planned, job.kernels[asked[i].kernels[k]], pair, answered->result.valid_keys));
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
