// SPDX-License-Identifier: Apache-2.0
// The door's view of a case's inputs.
#pragma once
#include "cases/inputs.h"
#include "kernels/api/smla_kernel.h"

namespace smla {

/// The C problem of these inputs, for a CPU (device fields 0). Packed strides; the variant's pad_strides leaves gaps of different sizes behind every
/// dimension of q, indices, out and lse, multiples of 16 bytes. `lse_element_bytes`: 4, or 2 where the kernel declares bf16.
smla_problem make_problem(const Inputs& in, int threads, int lse_element_bytes = 4);

/// Bytes from the first element to the end of the tensor's last dimension-0 step, gaps included: what a buffer of it must hold.
struct TensorBytes {
  int64_t q, kv, indices, topk_length, block_table, seq_lens, sink, out, lse;
};
TensorBytes tensor_bytes(const smla_problem& problem);

}  // namespace smla
