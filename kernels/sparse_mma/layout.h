// SPDX-License-Identifier: Apache-2.0
// Where logits and weights of a tile stand in shared memory: index arithmetic, for kernel and host test alike.
// A block is 16 tokens x 8 heads, 128 elements: row `logits_row(head)` of 16, in it four chunks of four tokens 2j, 2j+8, 2j+1, 2j+9, which are
// neighbours in the B fragment of thread j. Rows and chunks are permuted so that neither stores (C fragments) nor loads meet bank conflicts.
#pragma once

#if defined(__CUDACC__)
#define SMLA_LAYOUT __host__ __device__ constexpr
#else
#define SMLA_LAYOUT constexpr
#endif

namespace smla::cuda {

/// Place of token t (of 16) in the order of B fragments.
SMLA_LAYOUT int fragment_place(int t) { return t < 8 ? 4 * (t >> 1) + 2 * (t & 1) : 4 * ((t - 8) >> 1) + 2 * (t & 1) + 1; }
SMLA_LAYOUT int logits_row(int h) { return h ^ ((h >> 1) & 1); }
/// Thread (g, j) of a C fragment holds tokens g and g + 8 of heads 2j and 2j + 1: their place in the row of either head, two neighbours.
SMLA_LAYOUT int logits_store(int g, int j) { return ((g >> 1) ^ (j & 2)) * 4 + (g & 1) * 2; }
/// The element at place `f` of head h, in a block.
SMLA_LAYOUT int logits_at(int h, int f) { return logits_row(h) * 16 + ((f >> 2) ^ (2 * (h >> 2))) * 4 + (f & 3); }

/// A lane's share of the softmax where the four warps of a group divide the heads: `per` neighbours of one head.
struct SoftmaxShare {
  int head;   // of the group
  int block;  // of 16 tokens
  int place;  // of the first element in the block's order
};
/// tiles8: tiles of 8 heads in the group; per = tiles8 * (blocks of 16 tokens). Lanes count places first, then heads, then blocks.
SMLA_LAYOUT SoftmaxShare softmax_share(int warp, int lane, int tiles8, int per) {
  const int lanes16 = 16 / per, heads = 2 * tiles8;
  return {warp * heads + lane / lanes16 % heads, lane / (lanes16 * heads), lane % lanes16 * per};
}

}  // namespace smla::cuda
