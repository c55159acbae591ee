// SPDX-License-Identifier: Apache-2.0
// Device readings of a Job: the list of a token, its length, the address of an entry's row, output pointers.
#pragma once
#include "kernels/common/convert.cuh"
#include "kernels/common/job.h"

namespace smla::cuda {

/// A query token: request r, query j.
struct Token {
  int r, j;
};
__device__ __forceinline__ Token token_of(const Job& job, int t) {
  if (job.s_q == 1) return {t, 0};
  const int r = t / job.s_q;
  return {r, t - r * job.s_q};
}

__device__ __forceinline__ const int32_t* list_of(const Keys& keys, Token t) {
  return reinterpret_cast<const int32_t*>(reinterpret_cast<const char*>(keys.list) + t.r * keys.list_stride_bytes[0] +
                                          t.j * keys.list_stride_bytes[1]);
}
__device__ __forceinline__ int entries_of(const Keys& keys, Token t) {
  if (!keys.lens) return keys.max_entries;
  const int n = __ldg(keys.lens + int64_t{t.r} * keys.lens_stride[0] + t.j * keys.lens_stride[1]) + keys.lens_offset + t.j * keys.lens_step;
  return max(0, min(n, keys.max_entries));
}

/// The list element that entry e depends on. Separate from row_address, so that the load can be in flight early.
__device__ __forceinline__ int load_entry(const Keys& keys, const int32_t* list, int e) {
  return __ldg(list + (keys.positions ? keys.page.divide(e) : e));
}
inline constexpr uint32_t kNoRow = 0xffffffffu;
/// Number of the row of entry e; kNoRow where there is no key.
__device__ __forceinline__ uint32_t row_number(const Keys& keys, int entry, int e) {
  const uint32_t n = keys.positions ? e : entry, quotient = keys.page.divide(n), offset = n - quotient * keys.page.divisor;
  const uint32_t page = keys.positions ? entry : quotient;
  return static_cast<uint32_t>(entry) < keys.limit ? page * keys.page_units + offset * keys.row_units : kNoRow;
}
__device__ __forceinline__ const uint8_t* row_at(const Keys& keys, uint32_t number) { return keys.kv + uint64_t{number} * keys.unit_bytes; }
/// Where the row of entry e stands; nullptr where there is no key.
__device__ __forceinline__ const uint8_t* row_address(const Keys& keys, int entry, int e) {
  const uint32_t number = row_number(keys, entry, e);
  return number == kNoRow ? nullptr : row_at(keys, number);
}

__device__ __forceinline__ const uint8_t* q_row(const Job& job, Token t, int h) {
  return static_cast<const uint8_t*>(job.q) + t.r * job.q_stride_bytes[0] + t.j * job.q_stride_bytes[1] + h * job.q_stride_bytes[2];
}
__device__ __forceinline__ uint8_t* out_row(const Job& job, Token t, int h) {
  return static_cast<uint8_t*>(job.out) + t.r * job.out_stride_bytes[0] + t.j * job.out_stride_bytes[1] + h * job.out_stride_bytes[2];
}
__device__ __forceinline__ float* lse_of(const Job& job, Token t, int h) {
  return reinterpret_cast<float*>(reinterpret_cast<char*>(job.lse) + t.r * job.lse_stride_bytes[0] + t.j * job.lse_stride_bytes[1]) + h;
}

/// A row's softmax state: sum = sum_i 2^(x_i - reference), x in log2 units; sum = 0 where no key was seen.
/// What the weighted sum of V must be multiplied by: 1 / (sum + the sink's share); 0 for an empty row.
__device__ __forceinline__ float output_factor(const Job& job, int h, float reference, float sum) {
  if (!(sum > 0.f)) return 0.f;
  const float total = job.sink ? sum + exp2_approx(fmaf(__ldg(job.sink + h), 1.4426950408889634f, -reference)) : sum;
  return reciprocal(total);
}
/// BASE E, SINK EXCLUDED, -inf for an empty row.
__device__ __forceinline__ float natural_lse(float reference, float sum) {
  return sum > 0.f ? (reference + log2f(sum)) * 0.6931471805599453f : -__int_as_float(0x7f800000);
}

}  // namespace smla::cuda
