// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cases/kv_format.h"

namespace smla::cuda {
namespace {

void set_stride(Keys& k, int64_t page_stride_bytes) {
  k.page_stride_bytes = page_stride_bytes;
  k.unit_bytes = static_cast<uint32_t>(std::gcd(page_stride_bytes, int64_t{k.row_bytes}));
  k.page_units = static_cast<uint32_t>(page_stride_bytes / k.unit_bytes);
  k.row_units = static_cast<uint32_t>(k.row_bytes) / k.unit_bytes;
}

Job common_job(const smla_problem& p, const smla_buffers& b) {
  Job job{};
  job.q = b.q;
  job.out = b.out;
  job.lse = static_cast<float*>(b.lse);
  job.sink = b.sink;
  std::copy_n(p.q_stride_bytes, 3, job.q_stride_bytes);
  std::copy_n(p.out_stride_bytes, 3, job.out_stride_bytes);
  std::copy_n(p.lse_stride_bytes, 2, job.lse_stride_bytes);
  job.tokens = p.b * p.s_q;
  job.s_q = p.s_q;
  job.h_q = p.h_q;
  job.fp16 = p.q_dtype == SMLA_FP16;
  job.rope = p.d_qk > 512;
  job.fp8 = p.kv_format == SMLA_KV_FP8_656;
  job.sm_scale = p.sm_scale;
  job.scale_log2 = static_cast<float>(p.sm_scale * 1.4426950408889634);
  job.keys.kv = static_cast<const uint8_t*>(b.kv);
  job.keys.row_bytes = static_cast<int32_t>(row_bytes(static_cast<KvFormat>(p.kv_format), p.d_qk));
  job.keys.page = FastDiv::by(static_cast<uint32_t>(p.page_size));
  set_stride(job.keys, p.page_stride_bytes);
  return job;
}

}  // namespace

Job sparse_job(const smla_problem& p, const smla_buffers& b) {
  Job job = common_job(p, b);
  Keys& k = job.keys;
  k.list = b.indices;
  std::copy_n(p.indices_stride_bytes, 2, k.list_stride_bytes);
  k.lens = b.topk_length;
  k.lens_stride[0] = p.s_q;
  k.lens_stride[1] = 1;
  k.max_entries = p.topk;
  k.limit = static_cast<uint32_t>(std::min<int64_t>(p.num_slots, int64_t{std::numeric_limits<int32_t>::max()} + 1));
  if (p.page_stride_bytes == int64_t{p.page_size} * k.row_bytes) {
    k.page = FastDiv::by(1);
    set_stride(k, k.row_bytes);
  }
  return job;
}

Job dense_job(const smla_problem& p, const smla_buffers& b) {
  Job job = common_job(p, b);
  Keys& k = job.keys;
  const bool per_query = p.flags & SMLA_FLAG_TABLE_PER_QUERY;
  k.positions = 1;
  k.list = b.block_table;
  k.list_stride_bytes[0] = p.block_table_stride_bytes * (per_query ? p.s_q : 1);
  k.list_stride_bytes[1] = per_query ? p.block_table_stride_bytes : 0;
  k.lens = b.seq_lens;
  k.lens_stride[0] = 1;
  k.lens_offset = 1 - p.s_q;
  k.lens_step = 1;
  k.max_entries = static_cast<int32_t>(std::min<int64_t>(int64_t{p.max_pages} * p.page_size, std::numeric_limits<int32_t>::max()));
  k.limit = static_cast<uint32_t>(p.num_pages);
  return job;
}

}  // namespace smla::cuda
