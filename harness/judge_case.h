// SPDX-License-Identifier: Apache-2.0
// One case: every kernel runs it, the oracle answers it once, block by block, and each kernel is judged.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cases/needle.h"
#include "harness/plan.h"
#include "harness/rerun.h"
#include "harness/verdict.h"

namespace smla {

/// Kernels whose first launch in a process was looked at in this run. For several threads.
class FirstLaunches {
 public:
  bool contains(const std::string& kernel) const {
    const std::lock_guard lock(mutex_);
    return kernels_.contains(kernel);
  }
  /// False: it was there.
  bool insert(const std::string& kernel) {
    const std::lock_guard lock(mutex_);
    return kernels_.insert(kernel).second;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> kernels_;
};

struct JudgeOptions {
  std::vector<size_t> checks;  // indices into checks()
  int64_t oracle_rows = 0;     // 0 = all
  int determinism = 2;
  Accept accept = Accept::declared;
  double case_timeout_s = 60;
  int threads = 0;
  bool causes = true;  // are looked for, where rows are wrong
  Rerun rerun;
  std::shared_ptr<FirstLaunches> first_launches;  // null: nobody looks at them
  Timeline* timeline = nullptr;                   // where the time goes is noted there
  std::vector<Candidate> twins;                   // kernels that checks may run beside the one that is judged
  /// The self-test's: what sees the rows of a kernel (its place in the list), base run or check. Null: nothing does.
  std::function<RowHook(size_t kernel, bool base)> row_hook;
};

/// What became of one (case, kernel).
struct PairResult {
  std::string kernel;
  Contract contract;
  Evidence evidence;
  Decision decision;
  bool red = false;
  std::string expected;  // not empty: what the suite expected instead
  RunReply base;         // facts of the base run; its rows are dropped
  double oracle_ms = 0;  // of the case, for all its kernels together
  std::optional<NeedleCoverage> needle_coverage;
  std::string repro;      // one shell line that asks exactly this again
  bool left_out = false;  // interrupted before its last run: nothing but the kernel's name is known

  Status status() const { return decision.status(); }
};

struct CaseResult {
  std::vector<PairResult> pairs;  // in the order of the kernels
  int64_t valid_keys = 0;
};
/// Has the kernels run. What comes back judges their rows; it asks no worker, so the next case may run meanwhile. `planned` and `options` must
/// outlive it. Interrupted, it knows of those pairs alone that were through; empty: of none.
std::function<CaseResult()> run_case(const PlannedCase& planned, const std::vector<Candidate>& kernels, const JudgeOptions& options);
/// Both in turn; `turn`, if one is held, is given up in between. No pairs: interrupted before all were through.
CaseResult judge_case(const PlannedCase& planned, const std::vector<Candidate>& kernels, const JudgeOptions& options,
                      std::unique_lock<std::mutex> turn = {});

/// Tokens to judge so that about `rows` rows (t, h) are: special ones always, the others evenly spread. 0 = all.
std::vector<int64_t> judged_tokens(const Inputs& in, int64_t rows);

}  // namespace smla
