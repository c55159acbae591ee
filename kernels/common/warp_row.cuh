// SPDX-License-Identifier: Apache-2.0
// One (token, head) by one warp: keys one after another, online softmax with the true maximum, FP32. A lane holds the value pairs lane + 32 i of a
// row: i < 8 latent, i = 8 RoPE.
#pragma once
#include "kernels/common/job.cuh"

namespace smla::cuda {

/// Value pair lane + 32 i of a cached row. `fp16`: the type of the 16-bit values.
template <bool kFp8>
__device__ __forceinline__ float2 load_pair(const uint8_t* row, int i, int lane, bool fp16) {
  if constexpr (kFp8) {
    if (i < 8) {
      const uint16_t codes = *reinterpret_cast<const uint16_t*>(row + 64 * i + 2 * lane);
      const float scale = *reinterpret_cast<const float*>(row + 512 + 4 * (i / 2));
      return make_float2(e4m3_to_float(codes & 0xff) * scale, e4m3_to_float(codes >> 8) * scale);
    }
    return unpack16(fp16, *reinterpret_cast<const uint32_t*>(row + 528 + 4 * lane));
  } else {
    return unpack16(fp16, *reinterpret_cast<const uint32_t*>(row + 128 * i + 4 * lane));
  }
}

/// The state of a row: out = sum_i 2^(x_i - maximum) v_i and sum = sum_i 2^(x_i - maximum), x in log2 units; sum = 0 where no key was seen.
template <bool kFp8>
struct WarpRow {
  float2 query[9], out[8] = {};
  float maximum, sum = 0.f;

  __device__ __forceinline__ WarpRow(const Job& job, Token token, int h, int lane) {
    maximum = -__int_as_float(0x7f800000);
    const uint8_t* q = q_row(job, token, h);
#pragma unroll
    for (int i = 0; i < 9; ++i)
      query[i] = i < pairs(job) ? unpack16(job.fp16, *reinterpret_cast<const uint32_t*>(q + 128 * i + 4 * lane)) : make_float2(0, 0);
  }

  __device__ __forceinline__ void add(const Job& job, const uint8_t* row, int lane, bool rope_fp16) {
    float2 key[9];
    float dot = 0.f;
#pragma unroll
    for (int i = 0; i < 9; ++i)
      if (i < pairs(job)) {
        key[i] = load_pair<kFp8>(row, i, lane, i < 8 ? job.fp16 : rope_fp16);
        dot = fmaf(query[i].x, key[i].x, fmaf(query[i].y, key[i].y, dot));
      }
#pragma unroll
    for (int o = 16; o; o >>= 1) dot += __shfl_xor_sync(~0u, dot, o);
    const float x = dot * job.scale_log2, now = fmaxf(maximum, x);
    const float change = exp2f(maximum - now), p = exp2f(x - now);  // the first key: exp2(-inf) = 0
    sum = fmaf(sum, change, p);
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = make_float2(fmaf(out[i].x, change, p * key[i].x), fmaf(out[i].y, change, p * key[i].y));
    maximum = now;
  }

  static __device__ __forceinline__ int pairs(const Job& job) { return job.rope ? 9 : 8; }
};

}  // namespace smla::cuda
