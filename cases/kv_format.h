// SPDX-License-Identifier: Apache-2.0
// Byte layout of one cached token, as types that the encoder, the kernels and the byte counter all read.
#pragma once
#include <cstdint>

#include "cases/words.h"

namespace smla {

/// fp8_656. Offsets in bytes. Source: FlashMLA README, "FP8 KV Cache".
struct Fp8Row656 {
  static constexpr int kLatent = 512, kGroup = 128, kGroups = kLatent / kGroup, kRope = 64;
  static constexpr int kScaleOff = kLatent, kRopeOff = kScaleOff + kGroups * 4, kBytes = kRopeOff + kRope * 2;
};
static_assert(Fp8Row656::kScaleOff == 512 && Fp8Row656::kRopeOff == 528 && Fp8Row656::kBytes == 656);  // literals from the format's text

/// Bytes of one token's row: 2 * d_qk for the 16-bit formats.
constexpr int64_t row_bytes(KvFormat format, int d_qk) {
  switch (format) {
    case KvFormat::fp8_656:
      return Fp8Row656::kBytes;
    case KvFormat::fp8_584:
      return 584;
    case KvFormat::fp8_576:
      return 576;
    default:
      return 2 * int64_t{d_qk};
  }
}
static_assert(row_bytes(KvFormat::bf16, 576) == 1152 && row_bytes(KvFormat::fp16, 512) == 1024);

}  // namespace smla
