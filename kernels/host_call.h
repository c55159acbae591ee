// SPDX-License-Identifier: Apache-2.0
// A small case in host memory, hostile where the operator allows it: for tests of CPU kernels without the harness.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cases/inputs.h"
#include "kernels/api/smla_kernel.h"

namespace smla {

/// What one launch wrote, bit by bit: out [T][h_q][d_v] in q's type, lse [T][h_q] as stored (two bytes widened to float where bf16).
struct HostResult {
  std::vector<uint16_t> out;
  std::vector<float> lse;
  bool operator==(const HostResult& other) const;  // bitwise: NaN equals itself
};

/// Inputs as buffers: only selected slots hold data, everything else of the pool, the gaps of padded strides and a margin around every buffer is
/// poison.
class HostCall {
 public:
  static constexpr int64_t kMarginBytes = 1 << 17;

  HostCall(const Case& c, const Variant& variant = {}, int threads = 1);
  /// Launches over poisoned outputs and a dirty workspace. Throws std::runtime_error if the kernel declines or fails.
  HostResult run(const smla_kernel& kernel);
  /// Why the kernel declines; empty if it does not.
  std::string declines(const smla_kernel& kernel) const;
  /// True if the last run changed an input, or wrote outside out and lse (gaps and margins included).
  bool touched_other_memory() const;

  const Inputs& inputs() const { return in_; }
  smla_problem& problem() { return problem_; }
  smla_buffers& buffers() { return buffers_; }

 private:
  struct Buffer {
    std::vector<uint8_t> bytes, before;
    uint8_t* data = nullptr;
    void allocate(int64_t size, uint8_t fill);
  };
  struct Unmap {
    size_t bytes;
    void operator()(uint8_t* base) const;
  };
  void fill_pool();

  Inputs in_;
  std::unique_ptr<uint8_t, Unmap> far_pool_;
  smla_problem problem_;
  smla_buffers buffers_;
  int lse_element_bytes_ = 4;
  Buffer q_, kv_, indices_, topk_length_, block_table_, seq_lens_, sink_, out_, lse_, workspace_;
};

}  // namespace smla
