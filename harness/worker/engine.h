// SPDX-License-Identifier: Apache-2.0
// What a worker does: stages inputs, calls a kernel through the door, looks at everything the kernel could have touched, returns the judged rows.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/worker.h"
#include "harness/worker/device.h"
#include "harness/worker/process_state.h"
#include "harness/worker/protocol.h"

namespace smla {

class StagedInputs;

class Engine {
 public:
  /// `gpu`: ordinal of the device of the CUDA kernels, opened when the first of them is asked for; -1 = none.
  Engine(std::vector<const smla_kernel*> kernels, int gpu);
  ~Engine();
  std::vector<KernelInfo> list() const;
  // Each throws UsageError for an unknown kernel or a contradictory case; what the kernel did is in the reply's status.
  RunReply supports(const SupportsRequest& request);
  /// `judged`: out and lse of the judged rows, laid out as in blackbox.h, from kRowsOffset on.
  RunReply run(const RunRequest& request, std::byte* judged);
  TimeReply time(const TimeRequest& request);
  /// The last request left something behind (stray children, a large leak, a dead device): this process should not serve another.
  bool spoilt() const { return spoilt_; }

 private:
  struct Key {
    Case c;
    Variant variant;
    Guard guard;
    int32_t device;              // whose memory they lie in: kernels of the CPU and of a GPU may take turns
    bool whole_context = false;  // see StagedInputs
    bool operator==(const Key&) const = default;
  };
  const smla_kernel& find(const std::string& name) const;
  /// Ended{skipped}, with the reason, for a CUDA kernel without a GPU.
  Device& device_of(const smla_kernel& kernel);
  /// The inputs of these keys, in order; those of the last request that are not among them are freed first.
  std::vector<StagedInputs*> inputs(const std::vector<Key>& keys);
  /// Runs `body`; an Ended becomes the reply's status. Notices what else the kernel did to the process: stray children, limits.
  template <class Reply>
  void attempt(Reply& reply, const std::function<void()>& body);
  /// Runs `body` with the memory of a CPU kernel bounded; notices large leaks.
  void bounded(const Device& device, int threads, const std::function<void()>& body);

  std::vector<const smla_kernel*> kernels_;
  int gpu_ordinal_;
  Device* gpu_ = nullptr;
  bool spoilt_ = false;
  ProcessState process_;  // as it was when the kernels had been loaded
  bool loaded_ = false;   // a first call on a GPU was made
  // Of the last request: requests that differ only in kernel share them, since generation dominates.
  std::vector<std::pair<Key, std::unique_ptr<StagedInputs>>> kept_;
};

}  // namespace smla
