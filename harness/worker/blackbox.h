// SPDX-License-Identifier: Apache-2.0
// What a worker leaves behind when it dies: the first page of the memory that it shares with its parent. Judged rows follow at kRowsOffset.
#pragma once
#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smla {

inline constexpr int64_t kRowsOffset = 4096;

/// Written by the worker at every step and from its signal handler; read by the parent once the worker is dead. Zero = nothing said.
struct Blackbox {
  char stage[96];                // what it was doing: "launch 1 of 2"
  uint64_t begun;                // the number of the request that it took up last
  int64_t kernel_since_ns;       // steady clock: since when that is the kernel's work; 0 = it is the harness's
  int64_t kernel_spent_ns;       // what kernels took before that, in this request
  char fault[96];                // where a memory fault hit, relative to the nearest tensor: "1152 bytes before kv"
  bool in_other_thread;          // the fatal signal came in a thread of some kernel's, of this or of an earlier one
  int64_t data_bytes;            // private writable memory when a fatal signal came
  int64_t data_limit_bytes;      // the most it could have, 0 = no limit
  int64_t data_allowance_bytes;  // of it, what was the kernel's own

  double kernel_spent_s(int64_t now_ns) const {
    return static_cast<double>(kernel_spent_ns + (kernel_since_ns != 0 ? now_ns - kernel_since_ns : 0)) / 1e9;
  }
};
static_assert(sizeof(Blackbox) <= kRowsOffset);

/// Where lse begins, out's elements (2 bytes each) before it.
constexpr int64_t judged_lse_offset(int64_t out_count) { return kRowsOffset + (out_count * 2 + 3) / 4 * 4; }

/// Exit statuses of a worker that gives up by itself.
enum WorkerExit : int {
  kExitLostSocket = 97,  // the protocol's descriptor is gone: the kernel closed it
  kExitBadRequest = 98,  // what came is no request
};

/// The worker's own box: the shared page once open_blackbox() was called, before that a private one.
Blackbox& blackbox();
void open_blackbox(void* shared_page);
/// The kernel's time runs from a stage of its own to the next one that is the harness's.
enum class Turn { harness, kernel };
void set_stage(std::string_view stage, Turn turn = Turn::harness);

/// Installs handlers for the signals that a broken kernel raises: they fill `fault` and `data_bytes`, then let the signal take its course.
void watch_for_faults();
/// This thread is the harness's own, as the caller of watch_for_faults() is. Another is one that some kernel made.
void this_thread_is_ours();
/// Of SIGSEGV and SIGBUS, those whose handler is another by now. Whoever has one of his own can fault, jump back and go on.
std::vector<std::string> lost_fault_handlers();
/// Names memory that a kernel was given, for `fault`. At most 64 ranges at a time; more stay nameless.
void name_memory(const char* name, const void* data, int64_t bytes);
void forget_memory(const void* data);

/// Makes whole pages [begin, begin + bytes) read-only. The first write into them is noted; then they are writable again and the write goes through.
/// False: not done, because faults are not watched or there are too many such stretches.
bool lock_memory(void* begin, int64_t bytes);
/// Where a locked stretch was written first, nullptr if it was not.
const void* first_write(const void* begin);
/// Writable, and no longer looked after. Nothing happens where nothing was locked.
void unlock_memory(const void* begin);

/// Private writable memory of this process: what RLIMIT_DATA counts. 0 if it cannot be read.
int64_t data_bytes_now();

/// While it lives, the process may have `allowance_bytes` more of private writable memory than it has now: what a kernel leaks ends there.
class DataLimit {
 public:
  explicit DataLimit(int64_t allowance_bytes);
  ~DataLimit();
  DataLimit(const DataLimit&) = delete;

 private:
  rlim_t before_;
};

}  // namespace smla
