// SPDX-License-Identifier: Apache-2.0
// Defects in lengths, tables and per-row arguments.
#pragma once
#include "kernels/cpu/steps.h"

namespace smla::mutants {

using namespace cpu;

struct TopkLengthIgnored final : Steps {
  int64_t keys(const Call& c, const Row&) const override { return c.p.topk; }
};
struct TopkLengthToTile final : Steps {
  int64_t keys(const Call& c, const Row& row) const override {
    return std::min<int64_t>((Steps::keys(c, row) + kTile - 1) / kTile * kTile, c.p.topk);
  }
};
struct LengthAtLeastOne final : Steps {
  int64_t keys(const Call& c, const Row& row) const override { return std::max<int64_t>(Steps::keys(c, row), 1); }
};
struct TopkLengthByRequest final : Steps {
  int64_t topk_length_at(const Call&, const Row& row) const override { return row.r; }
};
struct TopkLengthOfFirstRow final : Steps {
  int64_t topk_length_at(const Call&, const Row&) const override { return 0; }
};
struct TopkCapped final : Steps {
  int64_t keys(const Call& c, const Row& row) const override { return std::min<int64_t>(Steps::keys(c, row), 512); }
};
struct Topk2048 final : Steps {
  const int32_t* index_row(const Call& c, const Row& row) const override { return at<int32_t>(c.io.indices, row.t * 2048 * 4); }
};
struct IndexRowsAligned final : Steps {
  const int32_t* index_row(const Call& c, const Row& row) const override {
    return at<int32_t>(c.io.indices, row.t * ((c.p.topk + 63) / 64 * 64) * 4);
  }
};
struct IndexRowsPacked final : Steps {
  const int32_t* index_row(const Call& c, const Row& row) const override { return at<int32_t>(c.io.indices, row.t * c.p.topk * 4); }
};
struct IndicesByRequest final : Steps {
  const int32_t* index_row(const Call& c, const Row& row) const override { return Steps::index_row(c, {row.t, row.r, 0}); }
};
struct RowOfBatchPlusQuery final : Steps {
  const int32_t* index_row(const Call& c, const Row& row) const override {
    const int32_t t = row.r + row.j;
    return Steps::index_row(c, {t, t / c.p.s_q, t % c.p.s_q});
  }
};
struct SecondChunkReadsFirst final : Steps {
  const int32_t* index_row(const Call& c, const Row& row) const override {
    const int64_t t = row.t % 16;
    return Steps::index_row(c, {t, static_cast<int32_t>(t / c.p.s_q), static_cast<int32_t>(t % c.p.s_q)});
  }
};
struct TableByQuery final : Steps {
  const int32_t* table_row(const Call& c, const Row& row) const override {
    return at<int32_t>(c.io.block_table, row.t * c.p.block_table_stride_bytes);
  }
};
struct TableByRequest final : Steps {
  const int32_t* table_row(const Call& c, const Row& row) const override {
    return at<int32_t>(c.io.block_table, row.r * c.p.block_table_stride_bytes);
  }
};
struct NegativeLengthUnsigned final : Steps {
  int64_t keys(const Call& c, const Row& row) const override { return std::min<int64_t>(static_cast<uint32_t>(visible(c, row)), c.max_keys()); }
};
struct LengthOfLongest final : Steps {
  int64_t visible(const Call& c, const Row& row) const override {
    return int64_t{*std::max_element(c.io.seq_lens, c.io.seq_lens + c.p.b)} - c.p.s_q + row.j + 1;
  }
};
struct FuturePosition final : Steps {
  int64_t visible(const Call& c, const Row& row) const override { return std::min(Steps::visible(c, row) + 1, c.max_keys()); }
};
struct NotCausal final : Steps {
  int64_t visible(const Call& c, const Row& row) const override { return c.io.seq_lens[row.r]; }
};
struct CausalFromTopLeft final : Steps {
  int64_t visible(const Call& c, const Row& row) const override { return std::min(row.j + 1, c.io.seq_lens[row.r]); }
};
struct NotItself final : Steps {
  int64_t visible(const Call& c, const Row& row) const override { return Steps::visible(c, row) - 1; }
};
struct LastPartialPageDropped final : Steps {
  int64_t visible(const Call& c, const Row& row) const override {
    const int64_t visible = Steps::visible(c, row);
    return visible >= c.p.page_size ? visible / c.p.page_size * c.p.page_size : visible;
  }
};
struct EmptyReadsBeforeTable final : Steps {
  int64_t keys(const Call& c, const Row& row) const override { return std::max<int64_t>(visible(c, row), 1); }
  Key key(const Call& c, const Row& row, int64_t i) const override {
    return visible(c, row) > 0 ? Steps::key(c, row, i) : Key{int64_t{table_row(c, row)[-1]} * c.p.page_size, true, true};
  }
};
struct TableOfOtherPageSize final : Steps {
  int64_t table_slot(const Call& c, const Row& row, int64_t position) const override {
    const int64_t page_size = 2 * int64_t{c.p.page_size};
    return table_row(c, row)[position / page_size] * page_size + position % page_size;
  }
};
struct PageTakenForSlot final : Steps {
  int64_t table_slot(const Call& c, const Row& row, int64_t position) const override {
    return table_row(c, row)[position / c.p.page_size] + position % c.p.page_size;
  }
};
struct PageIncremented final : Steps {  // looked up once a tile
  int64_t table_slot(const Call& c, const Row& row, int64_t position) const override {
    const int64_t first = position / kTile * kTile / c.p.page_size;
    return (table_row(c, row)[first] + (position / c.p.page_size - first)) * c.p.page_size + position % c.p.page_size;
  }
};
struct QueryOfFirstToken final : Steps {
  const uint16_t* q_row(const Call& c, const Row& row, int h) const override { return Steps::q_row(c, {row.t, row.r, 0}, h); }
};
struct SinkIgnored final : Steps {
  float sink(const Call&, const Row&, int) const override { return -kInf; }
};
struct SinkByRow final : Steps {
  float sink(const Call& c, const Row& row, int) const override { return c.io.sink ? c.io.sink[row.t % c.p.h_q] : -kInf; }
};
struct SinkOfFirstHead final : Steps {
  float sink(const Call& c, const Row&, int) const override { return c.io.sink ? c.io.sink[0] : -kInf; }
};
struct SinkScaled final : Steps {
  float sink(const Call& c, const Row&, int h) const override { return c.io.sink ? c.io.sink[h] * c.p.sm_scale : -kInf; }
};
struct SinkInBase2 final : Steps {
  float sink(const Call& c, const Row&, int h) const override { return c.io.sink ? c.io.sink[h] * 0.693147181f : -kInf; }
};
struct LengthOfNextRequest final : Steps {
  int64_t visible(const Call& c, const Row& row) const override { return int64_t{c.io.seq_lens[(row.r + 1) % c.p.b]} - c.p.s_q + row.j + 1; }
};
struct SinkTwice final : Steps {
  float sink(const Call& c, const Row& row, int h) const override { return Steps::sink(c, row, h) + 0.693147181f; }
};

}  // namespace smla::mutants
