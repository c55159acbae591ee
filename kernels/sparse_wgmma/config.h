// SPDX-License-Identifier: Apache-2.0
// What is tunable in the warpgroup-MMA kernel, and its shared memory plan.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cases/kv_format.h"

namespace smla::cuda {

/// Where K tiles come from.
///   slots  16-bit rows named one by one (any page layout; also positions of a dense call whose pages are not whole tiles)
///   pages  16-bit rows of consecutive positions: whole tiles by the copy engine, the last one of a token row by row
///   fp8    fp8_656 rows named one by one, converted to bf16 on the way
enum class Source : int32_t { slots, pages, fp8 };

inline constexpr int kTileTokens = 64, kBlockHeads = 64, kWarpHeads = 16;  // a tile of keys; heads of a CTA, of a warp
inline constexpr int kBlockBytes = 64 * 128;                               // 64 rows x 64 values of 16 bits, swizzle 128
inline constexpr int kTileBlocks = 9;                                      // 0-3 left columns of V, 4-7 right, 8 RoPE (later P)
inline constexpr int kTileBytes = kTileBlocks * kBlockBytes;
inline constexpr int kWarpgroup = 128;
/// log2 units by which the maximum may grow before accumulators are rescaled: P is at most 2^8. Exact for any value.
inline constexpr float kLazy = 8.f;
/// The producer rests after every kPaceRows rows: a burst of cp.async fills the memory-instruction queue in front of the softmax.
inline constexpr int kPaceRows = 4, kPaceNs = 20;

struct WgmmaShared {
  uint8_t q[kTileBytes];
  uint8_t k[2][kTileBytes];
  uint64_t full_left[2], full_right[2], empty_left[2], empty_right[2], q_full, q_empty;  // mbarriers
  int32_t tiles, pad[3];                                                                 // of the item whose Q is in place
  float maximum[2][kBlockHeads];                                                         // running maximum after tile i, at parity of i
  float row_sum[2][2][kBlockHeads];                                                      // [parity of the item][consumer warpgroup], at its end
  uint16_t valid[2][4];                                                                  // a bit for each token of the buffer
};
inline constexpr int kSharedLimitSm90 = 232448;
static_assert(sizeof(WgmmaShared) <= kSharedLimitSm90);
static_assert(sizeof(WgmmaShared) % 16 == 0 && offsetof(WgmmaShared, k) % 1024 == 0 && offsetof(WgmmaShared, full_left) % 8 == 0 &&
              offsetof(WgmmaShared, valid) % 8 == 0);

template <Source kSource_, bool kFp16_>
struct WgmmaConfig {
  static constexpr Source kSource = kSource_;
  static constexpr bool kFp16 = kFp16_;                              // type of q, P, out and of both MMAs
  static constexpr int kProducers = kSource == Source::fp8 ? 2 : 1;  // warpgroups, beside the two that consume
  static constexpr int kValueColumns = kProducers == 2 ? 128 : 256;  // of P V that one instruction takes
  static constexpr int kThreads = (2 + kProducers) * kWarpgroup;
  /// Registers of a thread after the roles have traded, out of the 168 (128) of each that the launch gave.
  static constexpr int kConsumerRegisters = kSource == Source::slots ? 200 : kSource == Source::pages ? 208 : 192;
  static constexpr int kProducerRegisters = kProducers == 1 ? 3 * 168 - 2 * kConsumerRegisters : 2 * 128 - kConsumerRegisters;
  static constexpr int kSharedBytes = sizeof(WgmmaShared);
};

}  // namespace smla::cuda
