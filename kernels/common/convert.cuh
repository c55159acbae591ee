// SPDX-License-Identifier: Apache-2.0
// Conversions between the stored types and fp32. All are exact or round to nearest even, once.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/ptx.cuh"

namespace smla::cuda {

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ uint32_t pack_fp16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ uint32_t pack16(bool fp16, float low, float high) { return fp16 ? pack_fp16(low, high) : pack_bf16(low, high); }

__device__ __forceinline__ float2 unpack16(bool fp16, uint32_t x) {
  if (fp16) {
    __half2 h;
    memcpy(&h, &x, 4);
    return __half22float2(h);
  }
  return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}

/// What decoded e4m3 values must be multiplied by, as a power of two: the integer form (no instruction before sm_89) gives value * 2^-8.
inline constexpr int kE4m3Exponent = kHasE4m3 ? 0 : 8;
/// Two e4m3 in the low (kHigh = 0) or high half of x -> f16x2, times 2^-kE4m3Exponent. Exact for all finite codes.
template <int kHigh>
__device__ __forceinline__ uint32_t e4m3_to_fp16x2(uint32_t x) {
  if constexpr (kHasE4m3) {
    uint32_t r;
    if constexpr (kHigh) asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.rn.f16x2.e4m3x2 %0, h;\n}" : "=r"(r) : "r"(x));
    else asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.rn.f16x2.e4m3x2 %0, l;\n}" : "=r"(r) : "r"(x));
    return r;
  } else {
    const uint32_t y = __byte_perm(x, 0, kHigh ? 0x3424 : 0x1404);  // byte 0 to bits 8..15, byte 1 to bits 24..31
    return (y & 0x80008000u) | ((y >> 1) & 0x3f803f80u);            // exponent bias 7 read as bias 15: 2^-8
  }
}
/// One e4m3 -> fp32, by its fields: no instruction needed. 0x7f and 0xff are NaN.
__device__ __forceinline__ float e4m3_to_float(uint8_t code) {
  const uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
  float value = exponent ? __uint_as_float((exponent + 120) << 23 | mantissa << 20) : mantissa * 0x1p-9f;
  if ((code & 0x7f) == 0x7f) value = __uint_as_float(0x7fffffffu);
  return code & 0x80 ? -value : value;
}

}  // namespace smla::cuda
