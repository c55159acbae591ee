// SPDX-License-Identifier: Apache-2.0
#include "harness/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "cases/pairwise.h"
#include "harness/capture/captured_call.h"
#include "harness/interrupt.h"
#include "harness/rerun.h"

namespace smla {
namespace {

double bytes_about(const Case& c) {
  return pairwise::pool_bytes(c) + static_cast<double>(c.tokens()) * (2.0 * c.h_q * (c.d_qk + c.d_v) + 4.0 * c.topk);
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

}  // namespace

Lanes::Lanes(const Job& job, const JudgeOptions& judge, const std::vector<Asked>& asked) : job_(job), asked_(asked), answers_(asked.size()) {
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

std::optional<Answered> Lanes::wait_for(size_t i) {
  std::unique_lock lock(mutex_);
  waited_for_ = i;
  changed_.notify_all();
  changed_.wait(lock, [&] { return answers_[i].done; });
  if (answers_[i].error) std::rethrow_exception(answers_[i].error);
  return std::exchange(answers_[i].answered, {});
}

int64_t Lanes::earliest_ns() {
  const std::lock_guard lock(mutex_);
  return std::min(steady_now_ns(), *std::min_element(since_ns_.begin(), since_ns_.end()));
}

void Lanes::end() {
  {
    const std::lock_guard lock(mutex_);
    next_ = asked_.size();
    changed_.notify_all();
  }
  for (std::jthread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void Lanes::work(size_t lane) {
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

std::optional<Answered> Lanes::ask(size_t lane, const Asked& asked) {
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
    if (job_.options.dump == Dump::none || pair.left_out || pair.status() != Status::fail || interrupted()) continue;
    const std::lock_guard lock(own);
    text = dump(job_, *asked.planned, kernels[k], pair);
  }
  return answered;
}

}  // namespace smla
