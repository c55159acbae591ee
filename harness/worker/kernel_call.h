// SPDX-License-Identifier: Apache-2.0
// One kernel with everything it is given: outputs, workspace, buffers; every call of it goes through here.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/worker.h"
#include "harness/worker/staged.h"

namespace smla {

/// A (case, kernel) ended otherwise than by running to its end.
struct Ended {
  Status status;
  std::string detail;
};

/// The word that a fill repeats. No right answer holds any of the three: two are NaN (neither the one that x86 makes nor CUDA's), and the third is
/// beyond every convex combination of cached values and every lse. So an element that still consists of its fill was not written, and one fill is
/// enough to know.
/// In outputs.
constexpr uint16_t word_of(OutputFill fill) { return fill == OutputFill::nan ? 0x7fd5 : fill == OutputFill::ones ? 0xffff : 0x7bff; }

/// Asks `supports` and `contract`. Ended{unsupported, reason} if the kernel declines.
Contract ask(const smla_kernel& kernel, const smla_problem& problem);

/// The same requests asked of a dense kernel: every row attends all positions of its request up to its own, of at most `context` of them.
struct DenseChange {
  int32_t context = 0;  // 0: all
};

class KernelCall {
 public:
  /// Asks. Nothing is allocated.
  KernelCall(const smla_kernel& kernel, Device& device, int threads, const Inputs& in, std::optional<DenseChange> dense = {});
  /// Whether the kernel would answer other inputs, too.
  bool supports(const Inputs& in) const;
  /// Stages these inputs (`take_turns`: the first alone, if together they are large), allocates outputs and a workspace that serves each of them.
  /// Ended{skipped, bytes} if the machine has too little, Ended{oom} if only the kernel's workspace does not fit.
  void allocate(const std::vector<StagedInputs*>& inputs, bool take_turns = false);
  /// Stages them. Ended{skipped} if there is too little memory.
  void stage(StagedInputs& inputs);

  void dirty_outputs(OutputFill fill);
  /// Launch 0 finds another fill in its workspace than in its outputs, so that what it reads there and passes on does not look like an output that
  /// was never written. Later launches find random bytes.
  void dirty_workspace(int launch, OutputFill fill);
  /// Each waits for the device. Ended{crash | oom} with the kernel's own text, what it threw, or the device's error.
  void prepare(const StagedInputs& inputs, const std::string& stage);
  void launch(const StagedInputs& inputs, const std::string& stage);
  /// Launches on a stream and does not wait: empty, or the kernel's error text. settle() waits. `kv`: another copy of the pool.
  std::string enqueue(const StagedInputs& inputs, const std::string& stage, void* stream, const void* kv = nullptr);
  /// Waits for the device; an error of the kernel or of the device ends the call.
  void settle(const std::string& stage, std::string error = {});
  /// A launch, recorded instead, on a device that can do that. Null, with the reason in `why`, where the launch cannot be recorded and the device
  /// survived that; else the call ends.
  std::unique_ptr<Device::Recording> record(const StagedInputs& inputs, const std::string& stage, std::string& why);
  /// While the gate is closed: empty, or which output no longer holds its fill.
  std::string written_early(OutputFill fill) const;
  struct Looked {
    std::string unwritten;  // empty, or which promised element was not written since dirty_outputs(fill)
    uint64_t out_hash = 0, lse_hash = 0;
  };
  Looked look(OutputFill fill) const;
  std::string unwritten(OutputFill fill) const { return look(fill).unwritten; }
  /// What the kernel wrote outside its outputs and workspace, if anything. `fill` as last given.
  std::optional<std::string> strays(OutputFill fill) const;
  uint64_t out_hash() const { return device.hash(out_.data, out_rows_); }
  uint64_t lse_hash() const { return lse_bytes_ ? device.hash(lse_.data, lse_rows_) : 0; }
  /// The judged rows, out as [tokens][h_q][d_v], lse widened as [tokens][h_q] (nothing for lse_dtype = none).
  void read_rows(const std::vector<int64_t>& tokens, uint16_t* out, float* lse) const;
  int32_t splits_used() const;
  int64_t workspace_bytes() const { return workspace_.bytes; }

  const smla_kernel& kernel;
  Device& device;
  const int threads;
  Contract contract;

 private:
  smla_problem problem(const Inputs& in) const;
  smla_buffers buffers(const StagedInputs& inputs) const;
  void* workspace() const { return workspace_.bytes ? workspace_.data : nullptr; }
  std::optional<DenseChange> dense_;
  int lse_bytes_ = 4;  // of an element; 0 = the kernel returns none
  smla_problem problem_;
  Rows out_rows_, lse_rows_;
  Block out_, lse_, workspace_, seq_lens_;  // seq_lens_: where DenseChange cuts the requests
};

}  // namespace smla
