// SPDX-License-Identifier: Apache-2.0
// What is tunable in the mma.sync kernel, and its shared memory plan.
#pragma once
#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "cases/kv_format.h"
#include "kernels/api/smla_kernel.h"
#include "kernels/sparse_mma/layout.h"

namespace smla::cuda {

inline constexpr int kSharedLimitSm120 = 101376;  // bytes a block may have on sm_86, sm_89, sm_120: the plan keeps to it everywhere

/// kFormat: SMLA_KV_*.  kTiles8: tiles of 8 heads a warp.  kGroups: groups of 4 warps, each with its own heads.
/// kTokens a tile, kStages tiles in the ring at most, kBlocksPerSm wanted.
template <int kFormat_, int kTiles8_, int kGroups_, int kTokens_, int kStages_, int kBlocksPerSm_>
struct MmaConfig {
  static constexpr int kFormat = kFormat_, kTiles8 = kTiles8_, kGroups = kGroups_, kTokens = kTokens_, kStages = kStages_,
                       kBlocksPerSm = kBlocksPerSm_;
  static constexpr bool kFp8 = kFormat == SMLA_KV_FP8_656,
                        kFp16 = kFormat != SMLA_KV_BF16;  // kFp16: type of the latent MMAs
  static constexpr int kHeadsPerGroup = 8 * kTiles8, kHeads = kHeadsPerGroup * kGroups;
  static constexpr int kWarps = 4 * kGroups, kThreads = 32 * kWarps;                                           // those that compute
  static constexpr int kFetchers = 2, kAllThreads = kThreads + 32 * kFetchers;                                 // fetchers: warps that only fetch rows
  static constexpr int kSteps = kTokens / 16;                                                                  // MMA tiles of 16 tokens
  static constexpr int kRowBytes = kFp8 ? Fp8Row656::kBytes : 1152, kLeastRowBytes = kFp8 ? kRowBytes : 1024;  // at least: without RoPE columns
  static constexpr int kRowsPerWarp = kTokens / kFetchers;                // rows that a warp fetches of each tile
  static constexpr int kTilesPerRegister = 32 / kRowsPerWarp;             // a lane holds one row; a register of the warp covers so many tiles
  static constexpr int kLogits = kGroups * 4 * kHeadsPerGroup * kTokens;  // floats: partial logits of the four warps of each group

  /// A line of 128 bytes is read from L2 once for each line of shared memory that it goes to. So where rows bound the kernel, rows of whole lines go
  /// to whole lines, 16 bytes at c of each 128 to c ^ (16 (row % 8)), against bank conflicts of ldmatrix; lanes copy them. Rows of 656 bytes start
  /// anywhere in a line, and two groups of warps need the issue slots: there rows stand as they are, 16 bytes further each, which meets no conflicts
  /// either, and are copied in bulk.
  static constexpr bool kLines = !kFp8 && kGroups == 1;
  static constexpr int kRowPitch = kFp8 || kLines ? kRowBytes : kRowBytes + 16;
  static SMLA_LAYOUT int place_in_line(int row, int c) { return kLines ? c ^ (row & 7) * 16 : c; }
  /// An address that place_in_line gave, `steps` times 32 bytes on in the row.
  static SMLA_LAYOUT uint32_t further(uint32_t at, int steps) { return kLines ? (at ^ (steps & 3) * 32) + (steps >> 2) * 128 : at + steps * 32; }

  /// 16 heads a warp: each warp does the softmax of a quarter of them; 8: each does all of it, which is as quick and needs no second barrier.
  static constexpr bool kSharedSoftmax = kTiles8 > 1;
  /// Q K of the next tile beside the softmax of this one. It takes registers that 16 heads a warp do not have, and a ring that is deep enough.
  static constexpr bool kAhead = kTiles8 == 1 && kStages > 2;

  struct Shared {  // `full` last: what precedes it is reused by Meeting
    alignas(128) uint8_t rows[kStages][kTokens * kRowPitch];
    float logits[kSharedSoftmax ? 1 : 2][kLogits];
    alignas(16) uint8_t weights[kSharedSoftmax ? kHeads * kTokens * (kFp8 ? 4 : 2) : 16];  // P in the order of B fragments: of MMA type, or fp32
    alignas(16) float multiplier[kFp8 ? kWarps * kHeadsPerGroup : 1];                      // undoes the normalisation of each warp's slice of Q
    alignas(16) float change[kHeads];                                                      // what this tile multiplies the sums so far by
    alignas(16) float mask[kStages][kTokens];                                              // 0 or -inf, in the order of a B fragment
    uint64_t full[kStages], empty[kStages];  // mbarriers: the rows of the stage have landed; all warps have left it
  };
  /// A CTA's partial, where the splits of a token meet in shared memory; in the place of the ring.
  struct Meeting {
    float4 sums[kHeads * 128];  // units as in Partials, of pair i at unit ^ 2 (i % 4): no bank conflicts
    float2 state[kHeads];
    float factor[2][kHeads];  // of each split: what its sums are multiplied by
  };
  static_assert(sizeof(Shared) <= kSharedLimitSm120 && sizeof(Meeting) <= offsetof(Shared, full));
  static_assert(offsetof(Shared, logits) % 16 == 0 && offsetof(Shared, mask) % 16 == 0 &&
                sizeof(float[kTokens]) % 16 == 0);  // read 16 bytes at a time
  static_assert(kRowPitch % 128 == (kLines ? 0 : 16) && kRowsPerWarp % 8 == 0 && kTokens % 16 == 0);
};

/// Where the splits of a token merge.
enum class MergeBy : int32_t {
  cluster,  // in shared memory, its splits being one cluster: one split, or two (more rarely fit the GPU's clusters of SMs)
  kernel    // in a kernel of its own
};

/// An instance as the host sees it.
struct MmaInstance {
  const char* name;  // of its file in instances/
  const void* kernel;
  int format, heads, tokens, stages, threads, shared_bytes, blocks_per_sm;
};

}  // namespace smla::cuda
