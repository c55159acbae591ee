// SPDX-License-Identifier: Apache-2.0
// One call's inputs in a device's memory: guarded, poisoned where no row reads, and able to tell whether they still are what was generated.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/worker/device.h"

namespace smla {

class StagedInputs {
 public:
  /// Makes the inputs; no device memory yet. Throws UsageError for a contradictory case.
  /// `whole_context`: every slot of a page in use holds its row, as a cache in use does, instead of poison where no row reads.
  StagedInputs(const Case& c, const Variant& variant, Guard guard, bool whole_context = false);

  /// Bytes that stage() will allocate.
  int64_t bytes_needed() const;
  /// Allocates and generates, where that is not done already. Throws OutOfMemory.
  void stage(Device& device);
  /// Gives the memory back.
  void unstage() { tensors_.clear(); }
  bool staged() const { return !tensors_.empty(); }
  /// Addresses of all inputs; out and lse are null.
  smla_buffers buffers() const;
  /// The pool as allocated, its guard rows included; `buffers().kv` stands at pool_lead_bytes() of it.
  const Block& pool() const { return tensors_[0].block; }
  /// Takes them out of every cache. False: the device cannot, or they are mostly address space.
  bool evict() const;
  int64_t pool_lead_bytes() const;  // guard row before the first page and behind the last
  /// What was written since: nullopt, or "indices: byte 12 of 8192 was written", "q: byte 8194 was written, it has 8192". The device notes writes, or
  /// every canary and every byte is looked at; then a write that changed nothing is not seen.
  std::optional<std::string> changed();
  /// Whether both lie in memory in the same way, so that one's content may take the other's place: equal problems, no pattern=far.
  bool same_layout(const StagedInputs& other) const;
  /// From now on these are the inputs of `other`, in the memory of this one. Both are staged, in the same layout.
  void become(const StagedInputs& other);

  Inputs in;

 private:
  struct Tensor {
    Block block;
    std::vector<Range> content;  // what of the block is backed
    bool watched = false;        // by the device; else by hash
    uint64_t hash = 0;
  };
  /// Memory of the `which`-th of kNames. Absent tensors (no sink, no topk_length) have none.
  Tensor allocate(Device& device, size_t which) const;
  /// Generates what stands in it.
  void write(Tensor& tensor, size_t which) const;
  std::vector<Tensor> tensors_;
  Guard guard_;
  bool whole_context_;
};

/// "kv: the byte 640 before its first one was written": a write at an offset that is not the tensor's.
std::string outside(const Block& block, int64_t at);

}  // namespace smla
