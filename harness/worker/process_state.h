// SPDX-License-Identifier: Apache-2.0
// What a kernel has in common with the harness in one process and must leave as it was, or the harness fails at its next step, in somebody else's
// name.
#pragma once
#include <sys/resource.h>

#include <array>
#include <cfenv>
#include <set>
#include <string>

namespace smla {

class ProcessState {
 public:
  /// As it is now.
  ProcessState();
  /// Limits that were lowered, timers that were left, handlers of faults (watch_for_faults) that are not ours any more, mappings and descriptors used
  /// up, a schedule that cannot be put back: "RLIMIT_AS was lowered to 0, ...", and put back as far as this user may. Empty: all is as it was.
  std::string put_back();

 private:
  std::array<rlimit, RLIM_NLIMITS> limits_;
  std::array<bool, 3> interval_timers_;  // ITIMER_*: one runs
  std::set<int> timers_;                 // of timer_create, by number
};

/// Where and when this thread runs: cores, policy and priority are as they were when this was called first, in whichever thread. A kernel may pin the
/// thread that calls it; the next one shall not be slower for that. What this user may not put back: "its priority was lowered to 19".
std::string put_back_schedule();

/// Rounding, flushing and exceptions of this thread, put back at the end of the scope.
class FloatEnvironment {
 public:
  FloatEnvironment() { fegetenv(&environment_); }
  ~FloatEnvironment() { fesetenv(&environment_); }
  FloatEnvironment(const FloatEnvironment&) = delete;

 private:
  fenv_t environment_;
};

}  // namespace smla
