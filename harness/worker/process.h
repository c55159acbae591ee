// SPDX-License-Identifier: Apache-2.0
// A child that may do anything: its own process group, a socket of its own, captured stdout and stderr, killed with everything it forked.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "harness/interrupt.h"

namespace smla {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  int release();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// How a child ended.
struct Exit {
  bool signalled = false;
  int code = 0;  // signal number or exit status
};
/// "SIGSEGV" or "exited with 3".
std::string to_string(const Exit& exit);

/// The most memory that a running process had at a time: VmHWM. 0 if it cannot be read.
int64_t peak_bytes(pid_t pid);

class Process {
 public:
  /// Starts program with the arguments (argv[0] included). The child finds the socket at descriptor 3, `shared` at 4, stdin empty. It leads a process
  /// group of its own, so that a Ctrl-C at the terminal does not reach it. Throws std::system_error.
  Process(const std::string& program, const std::vector<std::string>& args, int shared);
  /// Closes the socket for writing, which a healthy child answers by exiting, and kills what is still there after a moment.
  ~Process();
  Process(const Process&) = delete;

  enum class Event { line, exited, closed, deadline, flood };
  /// Writes line + LF. False if the child no longer reads.
  bool send(const std::string& line, std::chrono::steady_clock::time_point deadline);
  /// Waits for one line, reading stdout and stderr meanwhile. closed: the child lives, its end of the socket is shut. flood: more than max_bytes
  /// without a line feed.
  Event receive(std::string* line, size_t max_bytes, std::chrono::steady_clock::time_point deadline);
  /// What all its threads took of the processors, those that ended too.
  int64_t cpu_ns() const;
  /// Whether the child has ended (not reaped: kill() does that).
  bool ended() const;
  /// SIGKILLs the group, reaps the child and reads the last of its output. The child's own end if it had ended before.
  Exit kill();
  pid_t pid() const { return pid_; }
  /// The last signal that the child, or a process of its group, sent to this one; 0 = none.
  int signal_sent() const { return group_ ? group_->signal_sent() : sent_; }

  /// The last bytes of the child's output since clear(), at most kTailBytes each.
  static constexpr size_t kTailBytes = 8192;
  std::string out_text, err_text;
  void clear_text() { out_text.clear(), err_text.clear(); }

 private:
  bool wait_end(std::chrono::steady_clock::duration patience) const;
  void drain();
  pid_t pid_ = -1;
  std::optional<WorkerGroup> group_;  // until it is reaped
  int sent_ = 0;
  bool reaped_ = false;
  Exit exit_;
  Descriptor pidfd_, socket_, out_, err_;
  std::string received_;
};

}  // namespace smla
