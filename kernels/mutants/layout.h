// SPDX-License-Identifier: Apache-2.0
// Defects in where things stand: offsets, strides, grids, outputs.
#pragma once
#include <cstring>

#include "kernels/cpu/split.h"
#include "kernels/cpu/steps.h"

namespace smla::mutants {

using namespace cpu;

/// Byte offset of a slot, as it ought to be.
inline int64_t offset_bytes(const Steps& s, const Call& c, int64_t slot) {
  return slot / c.p.page_size * c.p.page_stride_bytes + slot % c.p.page_size * s.row_bytes(c);
}

struct OffsetInInt32Elements final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override {
    const int element_bytes = c.fp8() ? 1 : 2;
    return at<uint8_t>(c.io.kv, int64_t{static_cast<int32_t>(offset_bytes(*this, c, slot) / element_bytes)} * element_bytes);
  }
};
struct OffsetInUint32Bytes final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override {
    return at<uint8_t>(c.io.kv, static_cast<int64_t>(static_cast<uint32_t>(offset_bytes(*this, c, slot))));
  }
};
struct OffsetInUint32Elements final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override {
    const int element_bytes = c.fp8() ? 1 : 2;
    return at<uint8_t>(c.io.kv, int64_t{static_cast<uint32_t>(offset_bytes(*this, c, slot) / element_bytes)} * element_bytes);
  }
};
struct PageIn24Bits final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override {
    return Steps::kv_row(c, (slot / c.p.page_size & 0xffffff) * c.p.page_size + slot % c.p.page_size);
  }
};
struct PageOffsetInInt32 final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override {
    const auto page_bytes = static_cast<int32_t>(slot / c.p.page_size * c.p.page_stride_bytes);
    return at<uint8_t>(c.io.kv, int64_t{page_bytes} + slot % c.p.page_size * row_bytes(c));
  }
};
struct PageSize64 final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override {
    return at<uint8_t>(c.io.kv, slot / 64 * c.p.page_stride_bytes + slot % 64 * row_bytes(c));
  }
};
struct PageSizeEven final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override {
    const int64_t page_size = (c.p.page_size + 1) / 2 * 2;
    return at<uint8_t>(c.io.kv, slot / page_size * c.p.page_stride_bytes + slot % page_size * row_bytes(c));
  }
};
struct PageStrideIgnored final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override { return at<uint8_t>(c.io.kv, slot * row_bytes(c)); }
};
struct RowWidth576 final : Steps {
  int64_t row_bytes(const Call& c) const override { return c.fp8() ? Steps::row_bytes(c) : 2 * 576; }
};
struct RowBytesDoubled final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override { return at<uint8_t>(c.io.kv, 2 * offset_bytes(*this, c, slot)); }
};
struct WideRowsForSeveralQueries final : Steps {
  int64_t row_bytes(const Call& c) const override { return !c.fp8() && c.p.s_q > 1 ? 2 * 576 : Steps::row_bytes(c); }
};
struct QPacked final : Steps {
  const uint16_t* q_row(const Call& c, const Row& row, int h) const override { return at<uint16_t>(c.io.q, (row.t * c.p.h_q + h) * c.p.d_qk * 2); }
};
struct QHeadsBeforeTokens final : Steps {  // q read as [b][h_q][s_q]
  const uint16_t* q_row(const Call& c, const Row& row, int h) const override {
    return at<uint16_t>(c.io.q, row.r * c.p.q_stride_bytes[0] + (int64_t{h} * c.p.s_q + row.j) * c.p.q_stride_bytes[2]);
  }
};
struct OutPacked final : Steps {
  uint16_t* out_row(const Call& c, const Row& row, int h) const override { return at<uint16_t>(c.io.out, (row.t * c.p.h_q + h) * c.p.d_v * 2); }
};
struct OutStrideOfQ final : Steps {
  uint16_t* out_row(const Call& c, const Row& row, int h) const override {
    return at<uint16_t>(c.io.out, row.r * c.p.q_stride_bytes[0] + row.j * c.p.q_stride_bytes[1] + h * c.p.q_stride_bytes[2]);
  }
};
struct LsePacked final : Steps {
  void* lse_at(const Call& c, const Row& row, int h) const override { return at<uint8_t>(c.io.lse, (row.t * c.p.h_q + h) * 4); }
};
struct LseHeadsBeforeTokens final : Steps {
  void* lse_at(const Call& c, const Row& row, int h) const override {
    return at<uint8_t>(c.io.lse, row.r * c.p.lse_stride_bytes[0] + (int64_t{h} * c.p.s_q + row.j) * 4);
  }
};
struct HeadsSwapped final : Steps {
  const uint16_t* q_row(const Call& c, const Row& row, int h) const override { return Steps::q_row(c, row, (h ^ 1) < c.p.h_q ? h ^ 1 : h); }
};
struct HeadsWrapAt64 final : Steps {
  const uint16_t* q_row(const Call& c, const Row& row, int h) const override { return Steps::q_row(c, row, h % 64); }
};
struct OutQueriesReversed final : Steps {
  uint16_t* out_row(const Call& c, const Row& row, int h) const override { return Steps::out_row(c, {row.t, row.r, c.p.s_q - 1 - row.j}, h); }
};

// ---- which rows are run
struct RowsAbove65535Dropped final : Steps {
  int64_t rows(const Call& c) const override { return std::min<int64_t>(Steps::rows(c), 65535); }
};
struct LaunchAbove65535Rejected final : Steps {
  int64_t rows(const Call& c) const override { return Steps::rows(c) > 65535 ? 0 : Steps::rows(c); }
};
struct NoInstanceFor32Heads final : Steps {
  int64_t rows(const Call& c) const override { return c.p.h_q == 32 ? 0 : Steps::rows(c); }
};
struct GroupsOfEight final : Steps {
  int64_t rows(const Call& c) const override { return Steps::rows(c) < 8 ? Steps::rows(c) : Steps::rows(c) / 8 * 8; }
};
struct OneRowTooMany final : Steps {
  int64_t rows(const Call& c) const override { return Steps::rows(c) + 1; }
};

// ---- what is written
struct OneHeadZero final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    static const std::vector<float> zero(4096);
    Steps::store(c, row, h, h == c.p.h_q / 2 ? zero.data() : acc, lse);
  }
};
struct HeadsBelow16 final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    if (h < c.p.h_q / 16 * 16) Steps::store(c, row, h, acc, lse);
  }
};
struct LastColumnsUnwritten final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    uint16_t* last = out_row(c, row, h) + c.p.d_v - 8;
    uint16_t kept[8];
    std::copy_n(last, 8, kept);
    Steps::store(c, row, h, acc, lse);
    std::copy_n(kept, 8, last);
  }
};
struct NoLseWhenSplit final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    auto* at = static_cast<float*>(lse_at(c, row, h));
    const float kept = *at;
    Steps::store(c, row, h, acc, lse);
    if (SplitBody::splits(c) > 1) *at = kept;
  }
};
struct RowsWrittenPacked final : Steps {  // empty rows are left out, and those behind them move up
  uint16_t* out_row(const Call& c, const Row& row, int h) const override { return Steps::out_row(c, packed(c, row), h); }
  void* lse_at(const Call& c, const Row& row, int h) const override { return Steps::lse_at(c, packed(c, row), h); }
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    if (lse != -kInf) Steps::store(c, row, h, acc, lse);
  }
  Row packed(const Call& c, const Row& row) const {
    int64_t t = 0;
    for (int64_t i = 0; i < row.t; ++i) {
      bool any = false;
      const Row other = Steps::row(c, i);
      for (int64_t k = 0, n = keys(c, other); k < n && !any; ++k) any = key(c, other, k).counts;
      t += any;
    }
    return Steps::row(c, t);
  }
};
struct EmptyRowWritesPool final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    Steps::store(c, row, h, acc, lse);
    if (lse == -kInf) std::memset(const_cast<void*>(c.io.kv), 0, static_cast<size_t>(row_bytes(c)));  // slot 0 as the bin for padding
  }
};
struct RequestsSwapped final : Steps {  // neighbours, where both are there
  uint16_t* out_row(const Call& c, const Row& row, int h) const override {
    Row other = row;
    if ((row.r ^ 1) < c.p.b) other.r ^= 1;
    return Steps::out_row(c, other, h);
  }
};
struct OutHeadsFirst final : Steps {  // [h_q][b * s_q], in memory that holds [b * s_q][h_q]
  uint16_t* out_row(const Call& c, const Row& row, int h) const override {
    const int64_t place = h * rows(c) + row.t;
    return Steps::out_row(c, Steps::row(c, place / c.p.h_q), static_cast<int>(place % c.p.h_q));
  }
};
struct LseOfFirstHead final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    thread_local float first = 0;
    if (h == 0) first = lse;
    Steps::store(c, row, h, acc, first);
  }
};

}  // namespace smla::mutants
