// SPDX-License-Identifier: Apache-2.0
// Who may stop a run. Ctrl-C, SIGTERM and SIGHUP do: workers are killed, what was finished is judged and written, the count is told, the exit status
// is 128 + signal; a second one ends the program at once. The same signal out of a worker is a kernel's, and stops nothing.
#pragma once
#include <sys/types.h>

#include <functional>
#include <stdexcept>

namespace smla {

/// The user asked to stop before a case could be asked: nothing is lost, and exit status is 128 + signal.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Processes that this one starts from now on carry its number in their environment (SMLA_RUN). Before threads are made.
void mark_descendants();
/// From now on signals come here instead of ending the program, and orphans of marked workers to this process: to be called before threads are made,
/// which inherit that. A second call does nothing.
void watch_interrupts();
/// The signal of the user's that asked to stop, or 0.
int interrupted();

/// A process group whose leader is a child of this process. It is killed when the user asks to stop, its signals to this process are held against it,
/// and daemons that outlived it end with it where this process is watched. Watched or not (a library leaves the signals to the program that loaded
/// it), it can be made.
class WorkerGroup {
 public:
  /// `start` makes the group and returns its leader; signals wait until that is known. What it throws is thrown.
  explicit WorkerGroup(const std::function<pid_t()>& start);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  pid_t leader() const { return leader_; }
  /// The last signal that it sent here, up to now; 0 = none.
  int signal_sent() const;

 private:
  pid_t leader_;
};

}  // namespace smla
