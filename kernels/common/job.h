// SPDX-License-Identifier: Apache-2.0
// One call as the device sees it: plain data, built on the host from the door's structs, passed to kernels by value.
#pragma once
#include <cstdint>

#include "kernels/api/smla_kernel.h"

#if defined(__CUDACC__)
#define SMLA_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SMLA_HOST_DEVICE inline
#endif

namespace smla::cuda {

/// Division of 0 <= n < 2^31 by a number known on the host: one high multiply, an add, a shift.
struct FastDiv {
  uint32_t divisor = 1, multiplier = 1, shift = 0;
  static FastDiv by(uint32_t d) {
    FastDiv f{d, 1, 0};
    while ((uint64_t{1} << f.shift) < d) ++f.shift;
    f.multiplier = static_cast<uint32_t>((((uint64_t{1} << f.shift) - d) << 32) / d + 1);
    return f;
  }
  SMLA_HOST_DEVICE uint32_t divide(uint32_t n) const {
#if defined(__CUDA_ARCH__)
    return (__umulhi(n, multiplier) + n) >> shift;
#else
    return static_cast<uint32_t>(((uint64_t{n} * multiplier >> 32) + n) >> shift);
#endif
  }
};

/// Which cached rows a query token attends, and where they stand. Entry e of token (r, j) is number `e` of its list:
///   slots      (sparse): list[e] is a physical slot;
///   positions  (dense):  entry e is the position e, and list[e / page_size] its physical page.
/// A slot or page outside [0, limit) is no key.
struct Keys {
  const uint8_t* kv;
  const int32_t* list;
  int64_t list_stride_bytes[2];    // request, query
  const int32_t* lens;             // nullptr: max_entries for every token
  int32_t lens_stride[2];          // elements: request, query
  int32_t lens_offset, lens_step;  // entries of (r, j) = lens[...] + lens_offset + j * lens_step, clamped to [0, max_entries]
  int32_t max_entries;
  int32_t positions;  // bool
  uint32_t limit;     // pages, or slots
  FastDiv page;       // by page_size; by 1 for slots of a pool without gaps, whose stride is then one row
  int64_t page_stride_bytes;
  uint32_t unit_bytes, page_units, row_units;  // rows are numbered in units that divide a page's stride and a row: a row number fits 32 bits
  int32_t row_bytes;
};

struct Job {
  const void* q;
  void* out;
  float* lse;
  const float* sink;  // nullptr: none
  int64_t q_stride_bytes[3], out_stride_bytes[3], lse_stride_bytes[2];
  int32_t tokens, s_q, h_q;  // tokens = b * s_q
  int32_t fp16;              // bool: q, out and RoPE bytes are fp16, not bf16
  int32_t rope;              // bool: d_qk = 576, not 512
  int32_t fp8;               // bool: kv is fp8_656
  float scale_log2;          // sm_scale * log2 e
  float sm_scale;
  Keys keys;
};

/// The sparse reading of a call: indices, topk_length.
Job sparse_job(const smla_problem& problem, const smla_buffers& buffers);
/// The dense reading: block_table, seq_lens; query j of request r attends positions [0, seq_lens[r] - s_q + j].
Job dense_job(const smla_problem& problem, const smla_buffers& buffers);

}  // namespace smla::cuda
