// SPDX-License-Identifier: Apache-2.0
#include "cases/cost.h"

#include <algorithm>
#include <cmath>

namespace smla {
namespace {

/// Every tensor of the call but the pool: q and out in 16 bits, lse and sink in f32, the rest in int32.
int64_t small_tensor_bytes(const Inputs& in) {
  const int64_t rows = in.tokens() * in.c.h_q;
  return rows * in.c.d_qk * 2 + rows * in.c.d_v * 2 + rows * 4 + 4 * static_cast<int64_t>(in.indices.size() + in.topk_length.size());
}

/// far: only the 2 MiB pieces (what a GPU's address space is backed in) that hold selected rows. Otherwise all of it.
int64_t pool_bytes(const Inputs& in) {
  if (in.c.pattern != Pattern::far) return in.num_pages * in.page_stride_bytes;
  constexpr int64_t kPiece = int64_t{2} << 20;
  int64_t pieces = 0, last = -1;
  for (const int64_t slot : in.selected) {
    const int64_t begin = slot / in.c.page_size * in.page_stride_bytes + slot % in.c.page_size * in.row_bytes;
    for (int64_t piece = begin / kPiece; piece <= (begin + in.row_bytes - 1) / kPiece; ++piece)
      if (piece > last) ++pieces, last = piece;
  }
  return pieces * kPiece;
}

}  // namespace

Cost cost(const Inputs& in) {
  const int64_t small = small_tensor_bytes(in);
  return {2 * in.c.h_q * in.valid_keys * (in.c.d_qk + in.c.d_v), static_cast<int64_t>(in.selected.size()) * in.row_bytes + small,
          in.valid_keys * in.row_bytes + small};
}

Cost dense_cost(const Inputs& in) {
  int64_t entries = 0, positions = 0;
  for (const int32_t len : in.seq_lens) {
    positions += len;
    for (int32_t j = 0; j < in.c.s_q; ++j) entries += std::max(0, len - in.c.s_q + j + 1);
  }
  const int64_t slots = std::min(positions, static_cast<int64_t>(in.page_uses.size()) * in.c.page_size);  // requests may share pages
  const int64_t rows = in.tokens() * in.c.h_q;
  const int64_t small = rows * in.c.d_qk * 2 + rows * in.c.d_v * 2 + rows * 4 + 4 * static_cast<int64_t>(in.block_table.size() + in.seq_lens.size());
  return {2 * in.c.h_q * entries * (in.c.d_qk + in.c.d_v), slots * in.row_bytes + small, entries * in.row_bytes + small};
}

double inputs_bytes(const Case& c) {
  const double tokens = static_cast<double>(c.tokens()), entries = tokens * c.topk,
               per_request = std::ceil(static_cast<double>(c.s_kv) / c.page_size);
  const double pages = c.b * per_request * 9 / 8 + 2, slots = pages * c.page_size;
  const double table_rows = c.table == TableKind::query ? tokens : c.b;
  double bytes = 4 * entries + 4 * std::min(entries, slots) + slots / 4;                      // lists, selected, bitmaps
  bytes += (4 + 4 + 8 + sizeof(PageUse)) * pages + 4 * table_rows * (per_request + 3);        // page map, table
  bytes += (4 + 8 + 8) * tokens + 4.0 * c.b + 4.0 * c.h_q;                                    // topk_length, kinds of rows; lengths; sink
  if (c.values == Values::needle || c.values == Values::tracer) bytes += 4 * tokens * c.h_q;  // needle_keys
  return bytes;
}

int64_t tensor_bytes(const Inputs& in) {
  return pool_bytes(in) + small_tensor_bytes(in) + 4 * static_cast<int64_t>(in.block_table.size() + in.seq_lens.size() + in.sink.size());
}

}  // namespace smla
