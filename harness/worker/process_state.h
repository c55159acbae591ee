// SPDX-License-Identifier: Apache-2.0
// What a kernel has in common with the harness in one process and must leave as it was, or the harness fails at its next step, in somebody else's
// name.
#pragma once
#include <sys/resource.h>

#include <array>
#include <cfenv>
#include <string>

namespace smla {

class ProcessState {
 public:
  /// As it is now.
  ProcessState();
  /// Limits that were lowered, an alarm, handlers of faults (watch_for_faults) that are not ours any more, mappings and descriptors used up:
  /// "RLIMIT_AS was lowered to 0, ...", and put back as far as this user may. Empty: all is as it was.
  std::string put_back();

 private:
  std::array<rlimit, RLIM_NLIMITS> limits_;
};

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
