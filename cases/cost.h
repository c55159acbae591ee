// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "cases/inputs.h"

namespace smla {

/// What one call must do at least. Row bytes come from the KV format's own type.
struct Cost {
  int64_t flops;           // 2 * h_q * valid entries * (d_qk + d_v)
  int64_t bytes_unique;    // distinct valid slots * row bytes + q + out + lse + indices + topk_length
  int64_t bytes_gathered;  // valid entries * row bytes + the same
};
Cost cost(const Inputs& in);

/// What the same requests cost a dense kernel: every row attends all positions of its request up to its own.
Cost dense_cost(const Inputs& in);

/// Bytes that make_inputs() takes, from the shape alone: to be asked before a case that may be far too large is made. (lists, page table, the
/// bookkeeping of pages and slots)
double inputs_bytes(const Case& c);

/// Bytes of the call's tensors as allocated, pool included: what a machine must hold (for `skipped`).
int64_t tensor_bytes(const Inputs& in);

}  // namespace smla
