// SPDX-License-Identifier: Apache-2.0
#include "kernels/problem.h"

namespace smla {

smla_problem make_problem(const Inputs& in, int threads, int lse_element_bytes) {
  const Case& c = in.c;
  const int64_t gap_bytes = in.variant.pad_strides ? 16 : 0;
  smla_problem p = {};
  p.abi_version = SMLA_ABI_VERSION;
  p.struct_size = sizeof p;
  p.pass_kind = static_cast<int32_t>(c.pass_kind);
  p.b = c.b;
  p.s_q = c.s_q;
  p.h_q = c.h_q;
  p.s_kv = c.s_kv;
  p.topk = c.topk;
  p.d_qk = c.d_qk;
  p.d_v = c.d_v;
  p.page_size = c.page_size;
  p.num_pages = static_cast<int32_t>(in.num_pages);
  p.max_pages = in.max_pages;
  p.num_slots = in.num_slots;
  p.q_stride_bytes[2] = 2 * int64_t{c.d_qk} + gap_bytes;
  p.q_stride_bytes[1] = c.h_q * p.q_stride_bytes[2] + 2 * gap_bytes;
  p.q_stride_bytes[0] = c.s_q * p.q_stride_bytes[1] + 3 * gap_bytes;
  p.page_stride_bytes = in.page_stride_bytes;
  p.indices_stride_bytes[1] = 4 * int64_t{c.topk} + 2 * gap_bytes;
  p.indices_stride_bytes[0] = c.s_q * p.indices_stride_bytes[1] + 4 * gap_bytes;
  p.block_table_stride_bytes = 4 * int64_t{in.max_pages};
  p.out_stride_bytes[2] = 2 * int64_t{c.d_v} + 2 * gap_bytes;
  p.out_stride_bytes[1] = c.h_q * p.out_stride_bytes[2] + gap_bytes;
  p.out_stride_bytes[0] = c.s_q * p.out_stride_bytes[1] + 4 * gap_bytes;
  p.lse_stride_bytes[1] = int64_t{lse_element_bytes} * c.h_q + gap_bytes;
  p.lse_stride_bytes[0] = c.s_q * p.lse_stride_bytes[1] + 2 * gap_bytes;
  p.q_dtype = static_cast<int32_t>(c.q_dtype);
  p.kv_format = static_cast<int32_t>(c.kv_format);
  p.rope_dtype = static_cast<int32_t>(c.rope_dtype);
  p.flags = in.flags;
  p.num_splits = c.num_splits;
  p.threads = threads;
  p.sm_scale = c.sm_scale;
  return p;
}

TensorBytes tensor_bytes(const smla_problem& p) {
  const int64_t tokens = int64_t{p.b} * p.s_q, table_rows = p.flags & SMLA_FLAG_TABLE_PER_QUERY ? tokens : p.b;
  return {.q = p.b * p.q_stride_bytes[0],
          .kv = p.num_pages * p.page_stride_bytes,
          .indices = p.b * p.indices_stride_bytes[0],
          .topk_length = 4 * tokens,
          .block_table = table_rows * p.block_table_stride_bytes,
          .seq_lens = 4 * int64_t{p.b},
          .sink = 4 * int64_t{p.h_q},
          .out = p.b * p.out_stride_bytes[0],
          .lse = p.b * p.lse_stride_bytes[0]};
}

}  // namespace smla
