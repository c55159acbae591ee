// SPDX-License-Identifier: Apache-2.0
// MLA attention by warpgroup MMA (sm_90a), decode and prefill. One CTA = 64 heads; the grid is persistent over items (token, split), and 128 heads
// are two neighbouring CTAs that take the same items.
//
// Shared memory holds Q (64 x 576) and TWO tiles of 64 keys x 576. The 64 x 512 fp32 output lives in the registers of two consumer warpgroups:
// W = 0 columns [0, 256) ("left"), W = 1 columns [256, 512) ("right"). Tile i belongs to warpgroup i % 2: the owner computes S = Q K^T and the
// softmax, keeps P as A operand of its own half of P V, and publishes P in shared memory for the other half, over the RoPE block of the tile's own
// buffer, which is dead once S is known. Both add the tiles in the same order, so the running maximum is handed on and no P is ever rewritten.
//
//   W = 0: scores(0) softmax(0) own(0)                              other(1) scores(2) softmax(2) own(2) ...
//   W = 1:                      other(0) scores(1) softmax(1) own(1)                              other(3) ...
//
// own(i) = P(i) V(i), P in registers; other(i) = the same with P in shared memory. other(i) comes BEFORE scores(i + 1): it frees a buffer, and
// buffers are what the schedule starves of. A buffer is refilled in two pieces: left columns after W = 0, right columns and RoPE after W = 1.
//
//   who                   what                                   barriers
//   producer warpgroup    fetches Q and tiles, ahead of items    full_left full_right q_full: data landed. Waits empty_*, q_empty
//   a second one (fp8)    the right columns                      full_right. Waits empty_right
//   consumer warpgroups   all arithmetic                         empty_left: W = 0 is through with the tile; empty_right: W = 1. q_empty: last scores
//   between consumers     named, by parity of the tile           kMaximum, kEarlyP (tokens 0-31), kLateP (32-63): the owner arrives, the other waits
//
// Invalid entry: the row is zero-filled AND its score becomes -inf, because 0 * NaN = NaN. Q rows of heads that do not exist are zeros, not stored.
// Bound: the tensor cores, rows that are not there yet, and power (README, "what bounds it").
#pragma once
#include <type_traits>

#include "kernels/common/job.cuh"
#include "kernels/sparse_wgmma/kernel.h"
#include "kernels/sparse_wgmma/wgmma.cuh"

namespace smla::cuda {

/// Offsets in shared memory, bytes.
struct At {
  static constexpr uint32_t q = offsetof(WgmmaShared, q), k = offsetof(WgmmaShared, k), full_left = offsetof(WgmmaShared, full_left),
                            full_right = offsetof(WgmmaShared, full_right), empty_left = offsetof(WgmmaShared, empty_left),
                            empty_right = offsetof(WgmmaShared, empty_right), q_full = offsetof(WgmmaShared, q_full),
                            q_empty = offsetof(WgmmaShared, q_empty), maximum = offsetof(WgmmaShared, maximum), valid = offsetof(WgmmaShared, valid);
};
/// + parity of the tile; kSums: + 2 * parity of the item + the warpgroup that arrives, so that no id is waited for at two places of the program.
enum NamedBarrier { kMaximum = 2, kEarlyP = 4, kLateP = 6, kSums = 8 };

inline constexpr float kFarBelow = -1e30f;  // the maximum before any key: finite, so that differences are never NaN

/// Item -> token and split of it.
struct Work {
  int t, split, splits;
};
__device__ __forceinline__ Work work_of(const WgmmaParams& p, int item) {
  if (item < p.whole) return {item, 0, 1};
  const int part = item - p.whole, t = part / p.num_splits;
  return {p.whole + t, part - t * p.num_splits, p.num_splits};
}

// ---- producer ----------------------------------------------------------------------------------------------------------------------------

/// Where a warp's 16 rows stand. One warp instruction copies 512 bytes of one row: four 128-byte pieces into four blocks, swizzled by the row.
struct Rows {
  const uint8_t* row[16];                                                                               // + this lane's 16 bytes of a half
  const uint8_t* rope[4];                                                                               // 8 lanes a row, 4 rows an instruction
  __device__ __forceinline__ Rows(const uint8_t* from, uint32_t mine, uint32_t unit_bytes, int lane) {  // lane r brings row r
#pragma unroll
    for (int r = 0; r < 16; ++r) row[r] = from + lane * 16 + uint64_t{__shfl_sync(~0u, mine, r)} * unit_bytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) rope[i] = from + 1024 + (lane & 7) * 16 + uint64_t{__shfl_sync(~0u, mine, i * 4 + (lane >> 3))} * unit_bytes;
  }
  /// Rows whose bit is 0 are filled with zeros and not read.
  __device__ __forceinline__ void copy_half(uint32_t tile, int half, uint32_t bits, int warp, int lane, bool pace) const {
    const uint32_t to = tile + (half * 4 + (lane >> 3)) * kBlockBytes + warp * 16 * 128;
    if (bits == 0xffff) {
#pragma unroll
      for (int r = 0; r < 16; ++r) {
        if (r != 0 && r % kPaceRows == 0 && pace) __nanosleep(kPaceNs);
        copy16(to + r * 128 + (((lane & 7) ^ (r & 7)) << 4), row[r] + half * 512);
      }
    } else {
#pragma unroll
      for (int r = 0; r < 16; ++r) copy16(to + r * 128 + (((lane & 7) ^ (r & 7)) << 4), row[r] + half * 512, (bits >> r & 1) * 16);
    }
  }
  __device__ __forceinline__ void copy_rope(uint32_t tile, uint32_t bits, int warp, int lane) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = i * 4 + (lane >> 3);
      copy16(tile + 8 * kBlockBytes + (warp * 16 + r) * 128 + (((lane & 7) ^ (r & 7)) << 4), rope[i], (bits >> r & 1) * 16);
    }
  }
};

/// A copy of x whose derivatives the compiler cannot compute ahead of time and keep: registers are short.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
/// Eight e4m3 times an fp32 scale -> bf16, rounded to nearest.
__device__ __forceinline__ uint4 dequantise(uint32_t low, uint32_t high, float scale) {
  const float2 a = unpack16(true, e4m3_to_fp16x2<0>(low)), b = unpack16(true, e4m3_to_fp16x2<1>(low));
  const float2 c = unpack16(true, e4m3_to_fp16x2<0>(high)), d = unpack16(true, e4m3_to_fp16x2<1>(high));
  return make_uint4(pack_bf16(a.x * scale, a.y * scale), pack_bf16(b.x * scale, b.y * scale), pack_bf16(c.x * scale, c.y * scale),
                    pack_bf16(d.x * scale, d.y * scale));
}

/// Warp w of the producer serves rows 16 w .. 16 w + 15 of every tile. Everything but the copies happens before the buffer is free.
/// kHalf: which half of the columns, where two producers share a tile.
template <class C, int kHalf = 0>
struct Producer {
  const WgmmaParams& p;
  WgmmaShared& shared;
  const uint32_t base;
  const int warp, lane, head0;
  uint32_t count = 0, items = 0;  // tiles and items so far
  // of the present item
  Token token;
  const int32_t* list;
  int first, last, end;  // tiles [first, last); entries below `end`

  __device__ __forceinline__ void run(int item, int item_step) {
    for (; item < p.items; item += item_step, ++items) {
      const Work work = work_of(p, item);
      token = token_of(p.job, work.t);
      list = list_of(p.job.keys, token);
      const int entries = __shfl_sync(~0u, entries_of(p.job.keys, token), 0), tiles = (entries + kTileTokens - 1) / kTileTokens;
      const int share = tiles / work.splits, more = tiles - share * work.splits;  // the first `more` splits take one tile more
      first = work.split * share + min(work.split, more);
      last = first + share + (work.split < more ? 1 : 0);
      end = min(last * kTileTokens, entries);
      last = max(last, first + 1);  // an empty item is one tile without keys
      if constexpr (C::kSource == Source::slots) copy_tiles();
      else if constexpr (C::kSource == Source::pages) copy_pages();
      else convert_tiles();
    }
  }

  /// A lane looks up one row: lanes 0-15 the warp's rows 0 to 15, lanes 16-31 the same from 8 on.
  __device__ __forceinline__ int entry_index(int tile) const { return tile * kTileTokens + warp * 16 + ((lane & 15) ^ (lane >> 4) * 8); }
  __device__ __forceinline__ int load(int tile) const { return entry_index(tile) < end ? load_entry(p.job.keys, list, entry_index(tile)) : -1; }
  __device__ __forceinline__ bool is_key(int entry) const { return static_cast<uint32_t>(entry) < p.job.keys.limit; }
  /// In units of unit_bytes.
  __device__ __forceinline__ uint32_t row_offset(int entry, int tile) const {
    const Keys& keys = p.job.keys;
    const uint32_t n = keys.positions ? entry_index(tile) : entry, quotient = keys.page.divide(n), offset = n - quotient * keys.page.divisor;
    return (keys.positions ? entry : quotient) * p.page_units + offset * p.row_units;
  }

  /// The first `rows` of a warp's 16 rows, `stride` bytes apart, into a 64 x 576 tile; the others become zeros.
  __device__ __forceinline__ void copy_strided(uint32_t tile, const uint8_t* from, int64_t stride, int rows, bool pace) const {
    const uint32_t to = tile + (lane >> 3) * kBlockBytes + warp * 16 * 128;
#pragma unroll 1
    for (int r = 0; r < 16; ++r) {
      const uint32_t at = to + r * 128 + (((lane & 7) ^ (r & 7)) << 4), bytes = r < rows ? 16 : 0;
      const uint8_t* row = from + (r < rows ? r * stride : 0) + lane * 16;
      copy16_once(at, row, bytes);
      copy16_once(at + 4 * kBlockBytes, row + 512, bytes);
      if (lane < 8) copy16_once(at + 8 * kBlockBytes, row + (p.job.rope ? 1024 : 0), p.job.rope ? bytes : 0);
      if (r % kPaceRows == kPaceRows - 1 && pace) __nanosleep(kPaceNs);
    }
  }
  __device__ __forceinline__ void load_query() {
    mbar_wait(base + At::q_empty, (items & 1) ^ 1);
    if (warp == 0 && lane == 0) shared.tiles = last - first;
    const int h = head0 + warp * 16;
    copy_strided(base + At::q, q_row(p.job, token, min(h, p.job.h_q - 1)), p.job.q_stride_bytes[2], p.job.h_q - h, items > 0);
    copy16_arrive(base + At::q_full);
    if (warp == 0 && lane == 0) mbar_arrive(base + At::q_full);  // releases `tiles`
  }

  __device__ __forceinline__ void wait_empty(uint32_t which) const { mbar_wait(base + which + 8 * (count & 1), ((count >> 1) & 1) ^ 1); }
  /// One tile into the ring: `left` and `right` start the copies and make every thread arrive at the barrier they are given.
  template <class Left, class Right>
  __device__ __forceinline__ void fill(uint32_t bits, Left&& left, Right&& right) {
    const uint32_t b = count & 1, buffer = base + At::k + b * kTileBytes;
    wait_empty(At::empty_left);
    if (lane == 0) shared.valid[b][warp] = static_cast<uint16_t>(bits);
    left(buffer, base + At::full_left + 8 * b);
    if (lane == 0) mbar_arrive(base + At::full_left + 8 * b);  // releases `valid`
    wait_empty(At::empty_right);
    right(buffer, base + At::full_right + 8 * b);  // RoPE last, when both warpgroups are through: its block held P
    ++count;
  }

  __device__ __forceinline__ void copy_tiles() {
    int entry = load(first), next = load(first + 1);
    if (items == 0) load_query();  // while the first entries are on their way
    for (int tile = first; tile < last; ++tile) {
      const bool key = is_key(entry);
      const uint32_t bits = __ballot_sync(~0u, key) & 0xffff;
      const Rows rows(p.job.keys.kv, key ? row_offset(entry, tile) : 0, p.unit_bytes, lane);
      entry = next;
      next = load(tile + 2);         // two tiles ahead: a warp stops at the first use of what is not there yet, be it a move to another register
      const bool pace = count >= 2;  // nothing competes with a CTA's first two tiles
      fill(
          bits,
          [&](uint32_t buffer, uint32_t bar) {
            rows.copy_half(buffer, 0, bits, warp, lane, pace);
            copy16_arrive(bar);
          },
          [&](uint32_t buffer, uint32_t bar) {
            rows.copy_half(buffer, 1, bits, warp, lane, pace);
            rows.copy_rope(buffer, p.job.rope ? bits : 0, warp, lane);
            copy16_arrive(bar);
          });
      if (tile == first && items > 0) load_query();  // after the first tile, which may run ahead of the previous item
    }
  }

  // Pages of whole tiles: a box of the copy engine for each block; a tile that ends early goes row by row, so that what lies behind it is not read.
  __device__ __forceinline__ int load_page(int tile) const {
    return tile < last && tile * kTileTokens < end ? load_entry(p.job.keys, list, tile * kTileTokens) : -1;
  }
  __device__ __forceinline__ void copy_pages() {
    const Keys& keys = p.job.keys;
    int next = load_page(first);
    if (items == 0) load_query();
    for (int tile = first; tile < last; ++tile) {
      const int page = next, row = tile * kTileTokens - keys.page.divide(tile * kTileTokens) * keys.page.divisor;
      const int present = is_key(page) ? min(end - tile * kTileTokens, kTileTokens) : 0, mine = max(0, min(present - warp * 16, 16));
      next = load_page(tile + 1);
      if (warp == 1 && head0 == 0 && is_key(next) && (tile + 2) * kTileTokens <= end) {  // to L2 a tile ahead: the row of the next tile's page
        const int ahead = (tile + 1) * kTileTokens, ahead_row = ahead - keys.page.divide(ahead) * keys.page.divisor;
        if (elect_one()) prefetch_l2(keys.kv + next * keys.page_stride_bytes + ahead_row * keys.row_bytes, kTileTokens * keys.row_bytes);
      }
      auto boxes = [&](uint32_t buffer, uint32_t bar, int from, int to) {
        if (warp == 0 && elect_one()) {
          mbar_arrive_expect_tx(bar, (to - from) * kBlockBytes);
          for (int i = from; i < to; ++i) tensor_copy(buffer + i * kBlockBytes, p.pages, i * 64, row, page, bar);
        } else {
          mbar_arrive(bar);
        }
      };
      fill((1u << mine) - 1,
           [&](uint32_t buffer, uint32_t bar) {
             if (present == kTileTokens) return boxes(buffer, bar, 0, 4);
             wait_empty(At::empty_right);
             const uint8_t* from = present ? keys.kv + page * keys.page_stride_bytes + (row + warp * 16) * keys.row_bytes : keys.kv;
             copy_strided(buffer, mine ? from : keys.kv, keys.row_bytes, mine, false);
             copy16_wait_all();
             fence_proxy_async();
             mbar_arrive(bar);
           },
           [&](uint32_t buffer, uint32_t bar) {
             if (present == kTileTokens) boxes(buffer, bar, 4, 9);
             else mbar_arrive(bar);
           });
      if (tile == first && items > 0) load_query();
    }
  }

  // fp8_656. Two producer warpgroups, one for each half of the latent columns; the first also brings the RoPE part, the second Q. Lane l has rows
  // l / 4 and l / 4 + 8 of its warp's 16, of each the 16-byte pieces l % 4, + 4, ...: two addresses, two rows' scales, nothing shuffled between
  // stores; a quarter of a warp's store takes the even chunks of one row and the odd ones of the next: no bank conflicts. Codes go through registers,
  // asked for after the fence of the tile before (a fence waits for loads in flight); whatever can be known ahead is known by then.
  struct Fp8Rows {
    uint32_t number[2];  // in units; kNoRow: no key
    uint32_t bits;       // the warp's rows that are keys
    __device__ __forceinline__ bool wanted(int k) const { return number[k] != kNoRow; }
  };
  __device__ __forceinline__ const uint8_t* row_at(const Fp8Rows& rows, int k) const {
    return p.job.keys.kv + uint64_t{rows.number[k]} * p.unit_bytes;
  }
  /// Looks up a tile's rows, and asks for this half of them to be brought into L2; two CTAs of a token share that.
  __device__ __forceinline__ Fp8Rows find_rows(int entry, int tile, bool ahead) const {
    const int l = opaque(lane);
    Fp8Rows rows;
    rows.bits = __ballot_sync(~0u, is_key(entry)) & 0xffff;
    const uint32_t number = is_key(entry) ? row_offset(entry, tile) : kNoRow;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      rows.number[k] = __shfl_sync(~0u, number, (l >> 2) + 8 * k);
      if (ahead && (p.head_blocks != 2 || k == static_cast<int>(blockIdx.x & 1)) && rows.wanted(k) && (kHalf == 1 || (l & 3) < 2))
        prefetch_line_l2(row_at(rows, k) + kHalf * 256 + (l & 3) * 128);
    }
    return rows;
  }
  __device__ __forceinline__ void copy_rope(const Fp8Rows& rows, uint32_t buffer) const {
    const int l = opaque(lane);
    const uint32_t to = buffer + 8 * kBlockBytes + (warp * 16 + (l >> 2)) * 128 + (((l & 7) ^ (l >> 2)) << 4);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint8_t* from = rows.wanted(k) ? row_at(rows, k) + Fp8Row656::kRopeOff : p.job.keys.kv;
      const uint32_t bytes = rows.wanted(k) ? 16 : 0;
      copy16(to + k * 1024, from + ((l & 7) << 4), bytes);
      copy16((to ^ 64) + k * 1024, from + (((l & 7) ^ 4) << 4), bytes);
    }
  }
  __device__ __forceinline__ void convert_tiles() {
    int entry = load(first);
    if (kHalf == 1 && items == 0) load_query();  // while the first entries are on their way
    Fp8Rows rows = find_rows(entry, first, false);
    entry = load(first + 1);
    for (int tile = first; tile < last; ++tile, ++count) {
      const uint32_t b = count & 1, buffer = base + At::k + b * kTileBytes;
      const int l = opaque(lane), later = load(tile + 2);
      uint4 codes[2][4];  // [row][64 columns each]
      uint2 scales[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int j = 0; j < 4; ++j) codes[k][j] = load_global128(row_at(rows, k) + kHalf * 256 + j * 64 + (l & 3) * 16, rows.wanted(k));
        scales[k] = load_global64(row_at(rows, k) + Fp8Row656::kScaleOff + kHalf * 8, rows.wanted(k));
      }
      if constexpr (kHalf == 0) {
        wait_empty(At::empty_left);
        if (lane == 0) shared.valid[b][warp] = static_cast<uint16_t>(rows.bits);
      }
      wait_empty(At::empty_right);
      if constexpr (kHalf == 0) {
        copy_rope(rows, buffer);  // both warpgroups are through: its block held P
        copy16_arrive(base + At::full_right + 8 * b);
      }
      rows = find_rows(entry, tile + 1, true);
      entry = later;
      const uint32_t to = buffer + kHalf * 4 * kBlockBytes + (warp * 16 + (l >> 2)) * 128 + (((l & 3) * 2 ^ (l >> 2)) << 4);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const uint4 x = codes[k][j];
          const float scale = __uint_as_float(j < 2 ? scales[k].x : scales[k].y);
          store_shared(to + j * kBlockBytes + k * 1024, dequantise(x.x, x.y, scale));
          store_shared((to ^ 16) + j * kBlockBytes + k * 1024, dequantise(x.z, x.w, scale));
        }
      fence_proxy_async();
      const uint32_t full = base + (kHalf == 0 ? At::full_left : At::full_right) + 8 * b;
      mbar_arrive(full);
      if (kHalf == 0 && lane == 0) mbar_arrive(full);  // releases `valid`
      if (kHalf == 1 && tile == first && items > 0) load_query();
    }
  }
};

// ---- consumer warpgroup W ------------------------------------------------------------------------------------------------------------------

template <class C, int W>
struct Consumer {
  const WgmmaParams& p;
  WgmmaShared& shared;
  const uint32_t base;
  const int warp, lane, head0;
  const int row;                   // this thread's heads of the block: row and row + 8
  uint32_t before = 0, items = 0;  // tiles of this CTA before the present item; items so far
  float out[128], s[32];
  uint32_t weights[16];          // P of an own tile, A fragments
  float max0, max1, sum0, sum1;  // maximum, log2 units, at which out and sum stand; sums over own tiles, this thread's columns
  uint64_t valid;                // bits of the tile whose scores s holds

  __device__ __forceinline__ uint32_t parity_of(int i) const { return (before + i) & 1; }
  __device__ __forceinline__ uint32_t buffer(int i) const { return base + At::k + parity_of(i) * kTileBytes; }
  __device__ __forceinline__ void wait_full(uint32_t which, int i) const { mbar_wait(base + which + 8 * parity_of(i), ((before + i) >> 1) & 1); }
  __device__ __forceinline__ bool is_full(uint32_t which, int i) const { return mbar_test(base + which + 8 * parity_of(i), ((before + i) >> 1) & 1); }
  /// The whole warp has read what stood there: `valid`, the maximum.
  __device__ __forceinline__ void release(int i) const {
    __syncwarp();
    if (lane == 0) mbar_arrive(base + (W == 0 ? At::empty_left : At::empty_right) + 8 * parity_of(i));
  }
  __device__ __forceinline__ void release_query() const {
    __syncwarp();
    if (lane == 0) mbar_arrive(base + At::q_empty);
  }
  __device__ __forceinline__ void scale_out(float a0, float a1) {
#pragma unroll
    for (int j = 0; j < 32; ++j) out[4 * j] *= a0, out[4 * j + 1] *= a0, out[4 * j + 2] *= a1, out[4 * j + 3] *= a1;
  }

  template <int kFrom, int kTo>
  __device__ __forceinline__ void score_blocks(int i) {
    const uint64_t a = descriptor(base + At::q, kMajorK), b = descriptor(buffer(i), kMajorK);
#pragma unroll
    for (int k = kFrom * 4; k < kTo * 4; ++k) {
      const uint64_t step = ((k >> 2) * kBlockBytes + (k & 3) * 32) >> 4;
      wgmma_scores<C::kFp16>(s, a + step, b + step, k != 0);
    }
  }
  /// What cp.async wrote is ordered before wgmma by the reader; whoever stores rows otherwise does so itself.
  template <bool kCopied>
  __device__ __forceinline__ void wait_rows(uint32_t which, int i) const {
    wait_full(which, i);
    if constexpr (kCopied) fence_proxy_async();
  }
  __device__ __forceinline__ void start_scores(int i) {
    wait_rows<C::kSource == Source::slots>(At::full_left, i);
    valid = load_shared64(base + At::valid + 8 * parity_of(i));  // here, not in softmax(): shared memory answers slowly under wgmma
    wgmma_fence();
    score_blocks<0, 4>(i);
    wait_rows<C::kSource != Source::pages>(At::full_right, i);
    wgmma_fence();
    score_blocks<4, 9>(i);
    wgmma_commit();
  }

  /// The other's tile: takes over its maximum, rescales if it moved, starts P V. Nothing of ours is in flight on entry.
  __device__ __forceinline__ void start_other(int i) {
    named_sync(kMaximum + parity_of(i));  // comes ahead of P: out is rescaled while the owner is still in its exponentials
    const uint32_t at = base + At::maximum + parity_of(i) * (kBlockHeads * 4) + row * 4;
    const float now0 = load_shared(at), now1 = load_shared(at + 32);
    if (__any_sync(~0u, now0 != max0 || now1 != max1)) take_maximum(now0, now1);
    const uint64_t a = descriptor(buffer(i) + 8 * kBlockBytes, kMajorK), b = descriptor(buffer(i) + W * 4 * kBlockBytes, kMajorMn);
    named_sync(kEarlyP + parity_of(i));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 2; ++k) wgmma_values<C::kFp16, C::kValueColumns>(out, a + k * 2, b + k * 128);
    named_sync(kLateP + parity_of(i));
    wgmma_fence();
#pragma unroll
    for (int k = 2; k < 4; ++k) wgmma_values<C::kFp16, C::kValueColumns>(out, a + k * 2, b + k * 128);
    wgmma_commit();
  }

  /// Scores of entries that are no keys become -inf.
  __device__ __forceinline__ void mask() {
    const uint64_t mine = valid >> (2 * (lane & 3));
    const float none = -__int_as_float(0x7f800000);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (!(mine >> (8 * c) & 1)) s[4 * c] = none, s[4 * c + 2] = none;
      if (!(mine >> (8 * c) & 2)) s[4 * c + 1] = none, s[4 * c + 3] = none;
    }
  }
  __device__ __forceinline__ float above0(float score) const { return fmaf(score, p.job.scale_log2, -max0); }
  __device__ __forceinline__ float above1(float score) const { return fmaf(score, p.job.scale_log2, -max1); }
  /// The maximum moves to the largest score of the row where that exceeds it by more than kLazy; x0, x1: the largest of this thread.
  template <bool kFirst>
  __device__ __forceinline__ void raise_maximum(float x0, float x1) {
    x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 1)), x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 1));
    x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 2)), x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 2));
    const float now0 = above0(x0) > kLazy ? x0 * p.job.scale_log2 : max0, now1 = above1(x1) > kLazy ? x1 * p.job.scale_log2 : max1;
    if constexpr (kFirst) max0 = now0, max1 = now1;  // out and sums are zeros
    else take_maximum(now0, now1);
  }
  __device__ __forceinline__ void take_maximum(float now0, float now1) {
    const float a0 = exp2_approx(max0 - now0), a1 = exp2_approx(max1 - now1);
    scale_out(a0, a1);
    sum0 *= a0, sum1 *= a1, max0 = now0, max1 = now1;
  }
  __device__ __forceinline__ void publish_maximum(int i) const {
    if ((lane & 3) == 0) {
      const uint32_t at = base + At::maximum + parity_of(i) * (kBlockHeads * 4) + row * 4;
      store_shared(at, max0);
      store_shared(at + 32, max1);
    }
    named_arrive(kMaximum + parity_of(i));
  }

  /// P of tokens [16 k, 16 k + 16), A fragments.
  template <int k>
  __device__ __forceinline__ void exponentials(float& add0, float& add1) {
#pragma unroll
    for (int c = 2 * k; c < 2 * k + 2; ++c) {
      const float e0 = exp2_approx(above0(s[4 * c])), e1 = exp2_approx(above0(s[4 * c + 1]));
      const float e2 = exp2_approx(above1(s[4 * c + 2])), e3 = exp2_approx(above1(s[4 * c + 3]));
      if (c == 0) add0 = e0 + e1, add1 = e2 + e3;
      else add0 += e0 + e1, add1 += e2 + e3;
      weights[2 * c] = pack16(C::kFp16, e0, e1);
      weights[2 * c + 1] = pack16(C::kFp16, e2, e3);
    }
  }
  /// Where this lane stores its part of the weights of tokens 0 to 15; those of tokens 16 k stand at that ^ 32 k.
  __device__ __forceinline__ uint32_t weights_at(int i) const {
    const uint32_t l = opaque(lane), at_row = warp * 16 + (l & 15);
    return buffer(i) + 8 * kBlockBytes + at_row * 128 + (((l >> 4) ^ (l & 7)) << 4);
  }
  template <int k>
  __device__ __forceinline__ void store_weights(uint32_t at) const {
    store_matrix(at ^ (32 * k), weights[4 * k], weights[4 * k + 1], weights[4 * k + 2], weights[4 * k + 3]);
  }
  __device__ __forceinline__ void publish_weights(NamedBarrier which, int i) const {
    fence_proxy_async();
    named_arrive(which + parity_of(i));  // named: an mbarrier would queue behind wgmma's reads of shared memory
  }
  template <int k>
  __device__ __forceinline__ void own_values(int i) {
    const uint64_t b = descriptor(buffer(i) + W * 4 * kBlockBytes, kMajorMn);
    wgmma_values<C::kFp16, C::kValueColumns>(out, weights[4 * k], weights[4 * k + 1], weights[4 * k + 2], weights[4 * k + 3], b + k * 128);
  }
  /// Softmax of an own tile whose scores are complete, and its P V. The first product starts as soon as its 16 tokens have weights, the others'
  /// exponentials run under it; the other warpgroup, whose P V follows, has time.
  template <bool kFirst>
  __device__ __forceinline__ void finish_own(int i, int tiles) {
    if (valid != ~uint64_t{0}) mask();
    float x0 = fmaxf(s[0], s[1]), x1 = fmaxf(s[2], s[3]), add0, add1;
#pragma unroll
    for (int c = 1; c < 8; ++c) x0 = fmaxf(x0, fmaxf(s[4 * c], s[4 * c + 1])), x1 = fmaxf(x1, fmaxf(s[4 * c + 2], s[4 * c + 3]));
    if constexpr (kFirst) raise_maximum<true>(x0, x1);
    exponentials<0>(add0, add1);
    if (!kFirst && __any_sync(~0u, above0(x0) > kLazy || above1(x1) > kLazy)) {
      raise_maximum<false>(x0, x1);
      exponentials<0>(add0, add1);
    }
    wgmma_fence();
    own_values<0>(i);
    publish_maximum(i);
    if (i + 2 >= tiles) release_query();
    const uint32_t at = weights_at(i);
    store_weights<0>(at);
    exponentials<1>(add0, add1);
    store_weights<1>(at);
    wgmma_fence();
    own_values<1>(i);
    publish_weights(kEarlyP, i);
    exponentials<2>(add0, add1);
    store_weights<2>(at);
    exponentials<3>(add0, add1);
    store_weights<3>(at);
    wgmma_fence();
    own_values<2>(i);
    publish_weights(kLateP, i);
    wgmma_fence();
    own_values<3>(i);
    wgmma_commit();
    sum0 += add0, sum1 += add1;
    wgmma_wait<0>();
    pin(out);
    release(i);
  }

  __device__ __forceinline__ void run(int item, int item_step) {
    for (; item < p.items; item += item_step, ++items) {
#pragma unroll
      for (int i = 0; i < 128; ++i) out[i] = 0.f;
      max0 = max1 = kFarBelow, sum0 = sum1 = 0.f;
      mbar_wait(base + At::q_full, items & 1);
      fence_proxy_async();
      const int tiles = shared.tiles;
      if (W >= tiles) release_query();  // no tile of its own: this warpgroup never reads Q
#pragma unroll 1
      for (int i = W; i < tiles; i += 2) {  // the first tile is written out in full: ptxas serialises every wgmma if the two share a tail
        if (i == 0) {
          start_scores(i);
          wgmma_wait<0>();
          pin(s);
          finish_own<true>(i, tiles);
        } else {
          start_other(i - 1);
          const bool ready = __all_sync(~0u, is_full(At::full_left, i) && is_full(At::full_right, i));
          if (!ready) {  // do not hold that buffer while K(i) is still on its way
            wgmma_wait<0>();
            release(i - 1);
          }
          start_scores(i);
          wgmma_wait<1>();
          if (ready) release(i - 1);
          wgmma_wait<0>();
          pin(s);
          pin(out);
          finish_own<false>(i, tiles);
        }
      }
      if (((tiles - 1) & 1) != W) {  // the last tile is the other's
        start_other(tiles - 1);
        wgmma_wait<0>();
        pin(out);
        release(tiles - 1);
      }
      before += tiles;
      add_sums();
      store(work_of(p, item));
    }
  }

  /// Both warpgroups stand at the maximum of the last tile; their sums meet.
  __device__ __forceinline__ void add_sums() {
    const int row = opaque(this->row);
    sum0 += __shfl_xor_sync(~0u, sum0, 1), sum1 += __shfl_xor_sync(~0u, sum1, 1);
    sum0 += __shfl_xor_sync(~0u, sum0, 2), sum1 += __shfl_xor_sync(~0u, sum1, 2);
    float(&sums)[2][kBlockHeads] = shared.row_sum[items & 1];  // by parity: the other may still read those of the item before
    if ((lane & 3) == 0) sums[W][row] = sum0, sums[W][row + 8] = sum1;
    named_arrive(kSums + 2 * (items & 1) + W);
    named_sync(kSums + 2 * (items & 1) + 1 - W);
    sum0 = sums[0][row] + sums[1][row], sum1 = sums[0][row + 8] + sums[1][row + 8];
  }
  /// 1 / (sum + the sink's share); 0 for an empty row.
  __device__ __forceinline__ float factor(int h, float maximum, float sum) const {
    if (!(sum > 0.f)) return 0.f;
    if (p.job.sink && h < p.job.h_q) sum += exp2_approx(fmaf(__ldg(p.job.sink + h), 1.4426950408889634f, -maximum));
    return reciprocal(sum);
  }
  __device__ __forceinline__ void store(const Work& work) {
    const int lane = opaque(this->lane), row = opaque(this->row), head0 = opaque(this->head0), warp = opaque(this->warp);
    const bool leader = (lane & 3) == 0;
    if (work.splits > 1) {
      const int pairs = opaque(p.partials.pairs), splits = opaque(p.num_splits);
      if (head0 + warp * kWarpHeads >= 2 * pairs) return;  // no head of this warp's rows exists
      const int64_t t = work.t - p.whole;
      if (W == 0 && leader) {
        float2* state = p.partials.state + (t * 2 * pairs + head0 + row) * splits + work.split;
        state[0] = make_float2(max0, sum0);
        state[int64_t{8} * splits] = make_float2(max1, sum1);
      }
      float4* sums = p.partials.sums + ((t * splits + work.split) * pairs + head0 / 2 + warp * 8 + (lane >> 2)) * 256 + W * 128 + (lane & 3);
#pragma unroll
      for (int j = 0; j < 32; ++j) __stcg(sums + 4 * j, make_float4(out[4 * j], out[4 * j + 1], out[4 * j + 2], out[4 * j + 3]));
      return;
    }
    scale_out(factor(head0 + row, max0, sum0), factor(head0 + row + 8, max1, sum1));
    const Token token = token_of(p.job, work.t);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int h = head0 + row + 8 * half;
      uint8_t* to = out_row(p.job, token, h) + W * 512;
#pragma unroll
      for (int j = 0; j < 32; j += 4) {
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = pack16(C::kFp16, out[4 * (j + i) + 2 * half], out[4 * (j + i) + 2 * half + 1]);
        transpose_quad(v);
        if (h < p.job.h_q) __stcs(reinterpret_cast<uint4*>(to + 16 * (j + (lane & 3))), make_uint4(v[0], v[1], v[2], v[3]));
      }
      if (h < p.job.h_q && W == 0 && leader) *lse_of(p.job, token, h) = half ? natural_lse(max1, sum1) : natural_lse(max0, sum0);
    }
  }
  /// 4 x 4 transpose over the four lanes that share a row: 16 contiguous bytes a lane.
  __device__ __forceinline__ void transpose_quad(uint32_t (&v)[4]) const {
    uint32_t x = lane & 1 ? v[0] : v[1], y = lane & 1 ? v[2] : v[3];
    x = __shfl_xor_sync(~0u, x, 1), y = __shfl_xor_sync(~0u, y, 1);
    if (lane & 1) v[0] = x, v[2] = y;
    else v[1] = x, v[3] = y;
    x = lane & 2 ? v[0] : v[2], y = lane & 2 ? v[1] : v[3];
    x = __shfl_xor_sync(~0u, x, 2), y = __shfl_xor_sync(~0u, y, 2);
    if (lane & 2) v[0] = x, v[1] = y;
    else v[2] = x, v[3] = y;
  }
};

// ---- the kernel ------------------------------------------------------------------------------------------------------------------------------

/// Where a thread stands; asked anew by each role, so that no role keeps it for another.
struct Place {
  int warp, lane, head0, first_item, workers;
  __device__ __forceinline__ explicit Place(int head_blocks) {
    const int thread = opaque(static_cast<int>(threadIdx.x));
    warp = __shfl_sync(~0u, thread / 32 % 4, 0), lane = thread & 31;
    first_item = blockIdx.x / head_blocks, workers = gridDim.x / head_blocks;
    head0 = (static_cast<int>(blockIdx.x) - first_item * head_blocks) * kBlockHeads;
  }
};

/// Grid: head_blocks * workers. CTA c serves heads [64 (c % head_blocks), + 64) of items c / head_blocks + k * workers.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1) wgmma_kernel(const __grid_constant__ WgmmaParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<WgmmaShared*>(dynamic_shared);
  const uint32_t base = shared_address(dynamic_shared);
  if (threadIdx.x == 0) {
    for (uint32_t b = 0; b < 16; b += 8) {
      mbar_init(base + At::full_left + b, kWarpgroup + 4);  // every producer thread, and a lane of each warp for `valid`
      mbar_init(base + At::full_right + b, C::kProducers * kWarpgroup);
      mbar_init(base + At::empty_left + b, 4);  // a lane of each warp
      mbar_init(base + At::empty_right + b, 4);
    }
    mbar_init(base + At::q_full, kWarpgroup + 1);  // every producer thread, and one for `tiles`
    mbar_init(base + At::q_empty, 8);
    mbar_init_fence();
  }
  __syncthreads();
  allow_dependent_launch();  // every CTA is resident by now: the merge may queue behind them
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroup, 0);
  if (warpgroup == 2) {
    give_registers<C::kProducerRegisters>();
    const Place at(p.head_blocks);
    Producer<C, 0>{p, shared, base, at.warp, at.lane, at.head0}.run(at.first_item, at.workers);
  } else if (warpgroup == 0) {
    take_registers<C::kConsumerRegisters>();
    const Place at(p.head_blocks);
    Consumer<C, 0>{p, shared, base, at.warp, at.lane, at.head0, at.warp * 16 + at.lane / 4}.run(at.first_item, at.workers);
  } else if (C::kProducers == 1 || warpgroup == 1) {
    take_registers<C::kConsumerRegisters>();
    const Place at(p.head_blocks);
    Consumer<C, 1>{p, shared, base, at.warp, at.lane, at.head0, at.warp * 16 + at.lane / 4}.run(at.first_item, at.workers);
  } else if constexpr (C::kProducers == 2) {
    give_registers<C::kProducerRegisters>();
    const Place at(p.head_blocks);
    Producer<C, 1>{p, shared, base, at.warp, at.lane, at.head0}.run(at.first_item, at.workers);
  }
}

template <class C>
WgmmaInstance wgmma_instance(const char* name) {
  return {name, reinterpret_cast<const void*>(wgmma_kernel<C>), C::kThreads, C::kSharedBytes};
}

}  // namespace smla::cuda
