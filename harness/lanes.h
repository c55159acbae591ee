// SPDX-License-Identifier: Apache-2.0
// Two cases under way at a time, so that cores are not idle: while one's rows are judged, another's kernels run.
#pragma once
#include <array>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "harness/job.h"
#include "harness/judge_case.h"

namespace smla {

/// A case, and which of the job's kernels are asked it.
struct Asked {
  const PlannedCase* planned;
  std::vector<size_t> kernels;
};
struct Answered {
  CaseResult result;
  std::vector<std::string> dumped;  // of each pair: what to tell of its capture, if it was captured
};

/// Built-in CPU kernels have two sets of workers, so that both cases may run, unless the tensors of both are large. Answers are waited for in the
/// order of the cases. `job` and `asked` must outlive it.
class Lanes {
 public:
  Lanes(const Job& job, const JudgeOptions& judge, const std::vector<Asked>& asked);
  ~Lanes() { end(); }

  /// The answer to asked[i]; none if Ctrl-C came before it. Throws what its judge threw. To be called in order.
  std::optional<Answered> wait_for(size_t i);
  /// Nothing that is still under way, or to come, began before.
  int64_t earliest_ns();
  /// No further case begins; those under way are waited for.
  void end();
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

  void work(size_t lane);
  std::optional<Answered> ask(size_t lane, const Asked& asked);

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

}  // namespace smla
