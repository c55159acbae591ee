// SPDX-License-Identifier: Apache-2.0
// The parent's side of a worker: a process of its own that holds inputs, guards and the kernel, so that a kernel may do anything.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cases/contract.h"
#include "cases/inputs.h"
#include "harness/timeline.h"

struct smla_kernel;

namespace smla {

enum class OutputFill : int32_t { nan, ones, huge };  // NaN payload, 0xFF bytes, large finite: what out, lse and workspace hold before the call

/// What stands around the pool: a guard row of poison on both sides; or memory that is not mapped, so that even a read of it faults: directly before
/// slot 0, or directly behind the last page (rounded up to 256 bytes). Canaries stand around every other tensor, checked after the call.
enum class Guard : int32_t { canary, fault_before, fault_after };

/// How the kernel is called. In each way the answer to the request's inputs comes back, hashed after each launch of them; `other` is what runs
/// beside. The last three ask for streams: `unsupported` on a device that has none.
enum class Calls : int32_t {
  plain,         // `launches` times; `alternate`: the other inputs before every launch but the second, which finds what the first one left
  back_to_back,  // twice in a row, then the other inputs, then once more: the workspace stays as the call before left it
  gate,          // behind a kernel that holds the stream: nothing may be written before its turn
  graph,         // captured over the other inputs, replayed after these took their place in the same memory
  streams        // `launches` times, the other inputs at the same time on a second stream with outputs and workspace of their own
};

/// One question. out and lse are re-filled before each launch.
struct RunRequest {
  Case c;
  Variant variant, other = {.second = true};
  Calls calls = Calls::plain;
  std::string kernel;
  OutputFill fill = OutputFill::nan;
  Guard guard = Guard::canary;
  int launches = 1;
  bool alternate = false;
  int threads = 0;              // CPU kernels; 0 = all
  std::vector<int64_t> tokens;  // judged tokens, whose out and lse come back
  double deadline_s = 60;       // then the worker is killed if the kernel is what it waits for: timeout
};

/// What happened. `status` is pass (it ran), unsupported, skipped, crash, timeout or oom; `detail` says why (reason, signal, exit, error text, last
/// lines of stderr).
struct RunReply {
  Status status = Status::pass;
  std::string detail;
  Contract contract;  // as declared for this problem
  bool guards_ok = true, inputs_ok = true, written_ok = true;
  std::string guards_detail;                 // which buffer, which offset
  std::string misuse;                        // Calls::gate: not ordered on its stream; graph: cannot be captured. How it shows; empty = it does not
  std::vector<uint64_t> out_hash, lse_hash;  // [launches] of ALL rows' bytes, so that runs compare bit by bit
  std::vector<uint16_t> out;                 // [tokens][h_q][d_v] of the last launch, q's type
  std::vector<float> lse;                    // [tokens][h_q] of the last launch, widened, in the kernel's own convention; empty for lse_dtype = none
  int32_t splits_used = 0;                   // 0 = the kernel does not say
  int64_t workspace_bytes = 0;
  double prepare_ms = 0, first_launch_ms = 0, kernel_ms = 0;  // kernel_ms: median of the launches
  std::vector<Span> spans;                                    // where the time of the request went
  std::string stdout_text, stderr_text;                       // what the kernel printed, if anything: the last few KiB
};

/// One thing that is timed, in turn with the others of its request.
struct Lane {
  /// kernel: the case. dense: the kernel over the whole context of the same requests. dense_topk: over as many keys of each as the case selects.
  /// gather: nothing but loads of the rows that the case names. empty: a launch of nothing.
  enum class Work : int32_t { kernel, dense, dense_topk, gather, empty };
  Work work = Work::kernel;
  std::string kernel;  // gather, empty: any of the device
  bool graph = false;  // a sample is a replayed graph of many calls; else one call between two events
  bool cold = true;    // what a call reads is not in the last-level cache; else the same call came directly before
  bool operator==(const Lane&) const = default;
};
struct TimeRequest {
  Case c;
  std::vector<Lane> lanes;  // all of one device
  int min_samples = 5;      // of each lane before it may stop for being quiet
  double max_time_s = 2;    // of each lane
  double max_noise = 0.02;  // half the 95 % interval of the median, over it
  int threads = 0;
  double deadline_s = 120;
};
/// Raw samples of one lane, in the order of the rounds: in each round every lane that is not done takes one.
struct LaneReply {
  Status status = Status::pass;  // fail: what it launches is not on the stream it was given
  std::string detail;
  std::vector<double> time_us;       // of one call
  std::vector<int64_t> round;        // [samples], ascending
  std::vector<double> sm_clock_mhz;  // [samples], 0 = unknown
  std::vector<uint64_t> throttle;    // [samples] bits, see harness/cuda/nvml.h
  int calls_per_sample = 1;
  double cold_ratio = 0;  // bytes touched between two uses of the same bytes, over l2_bytes; 0 = warm, or taken out of the cache line by line
  double prepare_us = 0, host_launch_us = 0;
  double mem_clock_mhz = 0, power_w_median = 0, temperature_c_max = 0;  // 0 = unknown
  int32_t splits_used = 0;
  int64_t workspace_bytes = 0;
  std::string stop_reason;                   // noise | max_time | kernels_done (what they are held against)
  std::vector<uint64_t> out_hash, lse_hash;  // of the last timed call, and of some before it, over outputs that were filled before each
};
struct TimeReply {
  Status status = Status::pass;  // not pass: the worker died, or inputs were changed; no lane says anything
  std::string detail;
  int64_t l2_bytes = 0;
  std::vector<LaneReply> lanes;  // as asked
};

struct KernelInfo {
  std::string name, description, device;  // cpu or cuda
};

struct WorkerOptions {
  std::string plugin;   // shared library; empty = built-ins only
  std::string python;   // FILE.py:FUNCTION and words (harness/python): a Python process holds that one kernel
  int gpu = -1;         // -1 = none
  std::string program;  // the smla binary; empty = the one that stands here (program_file)
  double load_s = 120;  // to come up: a driver may take long
  double idle_s = 120;  // the most in which it may do nothing while it is not a kernel's turn
};

/// A worker. Started on first use, replaced after a crash, timeout or dead context; dies with its parent. Never throws for what a kernel did.
class Worker {
 public:
  explicit Worker(WorkerOptions options);
  ~Worker();
  Worker(const Worker&) = delete;
  /// Kernels of the built-in registry, or of the plug-in. A library that cannot be loaded throws UsageError with the reason.
  std::vector<KernelInfo> list();
  /// unsupported + reason, or pass. Asks `supports` only.
  RunReply supports(const Case& c, const std::string& kernel, int arch_cc = 0);
  RunReply run(const RunRequest& request);
  TimeReply time(const TimeRequest& request);
  /// Ends a process that was asked to run this kernel: the next one to do so has not.
  void renew_for(const std::string& kernel);
  bool alive() const;
  /// The most memory that the running worker, or one that was renewed, had at a time (of what it shares, its share included); 0 = none runs.
  int64_t peak_bytes() const;
  int restarts() const;  // how often it was replaced

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The worker process: `smla worker`, started by Worker only. Returns the exit status.
int worker_main(int argc, char** argv);
/// The same loop over kernels that `load` gives, which runs once the black box is open. What it throws as UsageError is told to the parent.
int serve_worker(int gpu, const std::function<std::vector<const smla_kernel*>()>& load);

}  // namespace smla
