// SPDX-License-Identifier: Apache-2.0
// A cached row read by one warp, two values a lane.
#pragma once
#include "kernels/common/convert.cuh"

namespace smla::cuda {

/// Value pair lane + 32 i of a cached row: i < 8 latent, i = 8 RoPE. `fp16`: the type of the 16-bit values.
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

}  // namespace smla::cuda
