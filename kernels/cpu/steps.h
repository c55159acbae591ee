// SPDX-License-Identifier: Apache-2.0
// A sparse MLA kernel taken apart: each decision that it makes on the way is one small function here. The bodies (naive.h, split.h) are written in
// these steps; the kernels run `Healthy`, where every call is inlined, and a planted defect (kernels/mutants) overrides one step and leaves the body
// alone.
#pragma once
#include <algorithm>

#include "cases/kv_format.h"
#include "kernels/cpu/config.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/number.h"

namespace smla::cpu {

/// One launch.
struct Call {
  const smla_problem& p;
  const smla_buffers& io;
  const Config& config;
  FloatType q_type() const { return static_cast<FloatType>(p.q_dtype); }
  /// Longest row: entries of its list, or positions that the block table can name.
  int64_t max_keys() const { return config.source == Source::table ? int64_t{p.max_pages} * p.page_size : p.topk; }
  bool fp8() const { return p.kv_format == SMLA_KV_FP8_656; }
};

/// One query token: t = r * s_q + j.
struct Row {
  int64_t t;
  int32_t r, j;
};

/// One entry of a row's list. An invalid entry is neither loaded (its K and V are zero) nor counted (its weight is zero): 0 * NaN = NaN.
struct Key {
  int64_t slot;
  bool load, counts;
};

/// Keys [begin, end) of a row.
struct Range {
  int64_t begin, end;
};

/// What a load is for. Only a defect loads K and V apart: V is the first d_v channels of K.
enum class Side { both, k, v };

/// Factors of the running sum and of the running output when the maximum moves.
struct Rescale {
  float sum, acc;
};

/// A finished row: lse BASE E, SINK EXCLUDED, -inf = no key; out = acc * scale.
struct Finished {
  float lse, scale;
};

struct Steps {
  // ---- the work
  virtual int64_t rows(const Call& c) const { return int64_t{c.p.b} * c.p.s_q; }
  virtual Row row(const Call& c, int64_t t) const { return {t, static_cast<int32_t>(t / c.p.s_q), static_cast<int32_t>(t % c.p.s_q)}; }

  /// The keys of a row that one split attends to: whole tiles, shared out evenly.
  virtual Range range(const Call& c, const Row& row, int split, int splits) const {
    const int64_t n = keys(c, row), tiles = (n + kTile - 1) / kTile;
    return {std::min(n, tiles * split / splits * kTile), std::min(n, tiles * (split + 1) / splits * kTile)};
  }
  /// Splits of a token that have arrived: from zero at every call, whatever the workspace holds.
  virtual void reset(const Call& c, int32_t* arrived) const { std::fill_n(arrived, rows(c), 0); }

  // ---- where things stand
  virtual const int32_t* index_row(const Call& c, const Row& row) const {
    return at<int32_t>(c.io.indices, row.r * c.p.indices_stride_bytes[0] + row.j * c.p.indices_stride_bytes[1]);
  }
  virtual const int32_t* table_row(const Call& c, const Row& row) const {
    return at<int32_t>(c.io.block_table, (c.p.flags & SMLA_FLAG_TABLE_PER_QUERY ? row.t : row.r) * c.p.block_table_stride_bytes);
  }
  virtual const uint16_t* q_row(const Call& c, const Row& row, int h) const {
    return at<uint16_t>(c.io.q, row.r * c.p.q_stride_bytes[0] + row.j * c.p.q_stride_bytes[1] + h * c.p.q_stride_bytes[2]);
  }
  virtual uint16_t* out_row(const Call& c, const Row& row, int h) const {
    return at<uint16_t>(c.io.out, row.r * c.p.out_stride_bytes[0] + row.j * c.p.out_stride_bytes[1] + h * c.p.out_stride_bytes[2]);
  }
  virtual void* lse_at(const Call& c, const Row& row, int h) const {
    return at<uint8_t>(c.io.lse,
                       row.r * c.p.lse_stride_bytes[0] + row.j * c.p.lse_stride_bytes[1] + h * (c.config.lse_dtype == LseType::bf16 ? 2 : 4));
  }
  virtual const uint8_t* kv_row(const Call& c, int64_t slot) const {
    return at<uint8_t>(c.io.kv, slot / c.p.page_size * c.p.page_stride_bytes + slot % c.p.page_size * row_bytes(c));
  }
  virtual int64_t row_bytes(const Call& c) const { return smla::row_bytes(static_cast<KvFormat>(c.p.kv_format), c.p.d_qk); }

  // ---- which keys
  /// Entries of the row's list to look at: K_t, or the dense kernel's visible positions.
  virtual int64_t keys(const Call& c, const Row& row) const {
    if (c.config.source == Source::table) return std::max<int64_t>(visible(c, row), 0);
    const int64_t length = c.io.topk_length ? c.io.topk_length[topk_length_at(c, row)] : c.p.topk;
    return std::clamp<int64_t>(length, 0, c.p.topk);
  }
  virtual int64_t topk_length_at(const Call&, const Row& row) const { return row.t; }
  virtual int64_t visible(const Call& c, const Row& row) const { return int64_t{c.io.seq_lens[row.r]} - c.p.s_q + row.j + 1; }
  /// Entry i of the row.
  virtual Key key(const Call& c, const Row& row, int64_t i) const {
    const int64_t slot = c.config.source == Source::table ? table_slot(c, row, i) : index_row(c, row)[i];
    const bool valid = this->valid(c, slot);
    return {slot, valid, valid};
  }
  /// What fills the last tile behind the row's last entry.
  virtual Key key_behind(const Call&, const Row&, int64_t /*i*/) const { return {-1, false, false}; }
  virtual int64_t table_slot(const Call& c, const Row& row, int64_t position) const {
    return int64_t{table_row(c, row)[position / c.p.page_size]} * c.p.page_size + position % c.p.page_size;
  }
  virtual bool valid(const Call& c, int64_t slot) const { return slot >= 0 && slot < c.p.num_slots; }

  // ---- a key's values
  virtual bool loads_v_apart() const { return false; }
  /// d_qk floats of one key, and for fp8_656 the four scales that the first 512 of them (codes) are still to be multiplied by.
  virtual void load(const Call& c, const Row&, int64_t /*i*/, const Key& key, Side, float* values, float* scale) const {
    if (key.load) {
      decode(c, kv_row(c, key.slot), values, scale);
    } else {
      std::fill_n(values, c.p.d_qk, 0.f);
      if (c.fp8()) std::fill_n(scale, Fp8Row656::kGroups, 0.f);
    }
  }
  virtual void decode(const Call& c, const uint8_t* bytes, float* values, float* scale) const {
    if (!c.fp8()) {
      decode_16(static_cast<FloatType>(c.p.kv_format), at<uint16_t>(bytes, 0), values, c.p.d_qk);
      return;
    }
    decode_codes(bytes, values);
    for (int group = 0; group < Fp8Row656::kGroups; ++group) scale[group] = fp8_scale(at<float>(bytes, Fp8Row656::kScaleOff)[group]);
    decode_rope(c, at<uint16_t>(bytes, Fp8Row656::kRopeOff), values + Fp8Row656::kLatent);
  }
  virtual void decode_codes(const uint8_t* codes, float* values) const { decode_e4m3(codes, values, Fp8Row656::kLatent); }
  virtual float fp8_scale(float stored) const { return stored; }
  virtual void decode_rope(const Call& c, const uint16_t* rope, float* values) const {
    decode_16(static_cast<FloatType>(c.p.rope_dtype), rope, values, Fp8Row656::kRope);
  }
  /// d_qk floats of q. Returns the factor that they are still to be multiplied by.
  virtual float load_q(const Call& c, const Row& row, int h, float* q) const {
    decode_16(c.q_type(), q_row(c, row, h), q, c.p.d_qk);
    if (c.config.q == Rounding::exact) return 1;
    float largest = 0;
    for (int d = 0; d < c.p.d_qk; ++d) largest = std::max(largest, std::fabs(q[d]));
    int exponent = 0;
    std::frexp(largest / 448, &exponent);
    const float scale = std::ldexp(1.f, exponent);
    for (int d = 0; d < c.p.d_qk; ++d) q[d] = rounded(q[d] / scale, c.config.q, c.q_type());
    return scale;
  }

  // ---- scores and softmax
  virtual float sm_scale(const Call& c) const { return c.p.sm_scale; }
  virtual float masked(float x, bool counts) const { return counts ? x : -kInf; }
  virtual float first_max() const { return -kInf; }
  virtual float next_max(const Call& c, float m, float tile_max) const {
    if (c.config.max_rule == MaxRule::ceil) tile_max = std::ceil(tile_max);
    if (c.config.max_rule == MaxRule::lazy && m != -kInf) return tile_max > m + 8.f ? tile_max : m;
    return std::max(m, tile_max);
  }
  /// What scores are measured from: as long as no key was seen the maximum is -inf, and -inf - -inf is no number.
  virtual float anchor(float m) const { return m == -kInf ? 0.f : m; }
  virtual float exp(float x) const { return fast_exp(x); }
  virtual Rescale rescale(float m_old, float m_new) const {
    const float factor = exp(m_old - anchor(m_new));
    return {factor, factor};
  }
  virtual void scores(const float* q, const float* k, int heads, int keys, int width, const ScaledChannels* segments, int num_segments,
                      float* x) const {
    cpu::scores(q, k, heads, keys, width, segments, num_segments, x);
  }
  virtual void weigh(const float* p, const float* v, int heads, int keys, int width, int begin, int end, const float* factor, float norm, float* acc,
                     int d_v) const {
    cpu::weigh(p, v, heads, keys, width, begin, end, factor, norm, acc, d_v);
  }
  virtual void round_p(const Call& c, float* p, int n) const {
    if (c.config.p == Rounding::fp32) return;
    for (int i = 0; i < n; ++i) p[i] = rounded(p[i] * c.config.p_scale, c.config.p, c.q_type());
  }
  /// out = the tile's scales of one group over a power of two, which is returned: the largest comes to lie in [1/2, 1).   scale [kTile], `stride`
  /// apart.
  virtual float fold(const float* scale, int stride, float* out) const {
    float largest = 0;
    for (int i = 0; i < kTile; ++i) largest = std::max(largest, scale[i * stride]);
    int exponent = 0;
    std::frexp(largest, &exponent);
    const float norm = std::ldexp(1.f, exponent), inverse = std::ldexp(1.f, -exponent);
    for (int i = 0; i < kTile; ++i) out[i] = scale[i * stride] * inverse;
    return norm;
  }
  virtual void accumulated(const Call&, float* /*acc*/, int /*n*/) const {}
  /// sum = sum of exp(x - m).
  virtual Finished finish(float m, float sum, bool /*split*/) const {
    return sum == 0.f ? Finished{-kInf, 0.f} : Finished{m + std::log(sum), 1.f / sum};
  }

  // ---- the merge of splits
  /// Index of a partial (out, lse) of one head.
  virtual int64_t part_at(const Call& c, const Row& row, int split, int splits, int h) const { return (row.t * splits + split) * c.p.h_q + h; }
  virtual int64_t part_written_at(const Call& c, const Row& row, int split, int splits, int h) const { return part_at(c, row, split, splits, h); }
  /// exp(lse - of), -inf - -inf being no number.
  virtual float merge_term(float lse, float of) const { return exp(lse - anchor(of)); }
  virtual float merged_lse(float max, float sum) const { return sum == 0.f ? -kInf : max + std::log(sum); }
  virtual float merge_weight(float lse, float merged, int /*splits*/) const { return merge_term(lse, merged); }
  /// A split that saw no key has no partial output: what stands there must not be multiplied, not even by 0.
  virtual bool merge_skips(float weight) const { return weight == 0.f; }
  virtual int merge_order(int i, int /*splits*/) const { return i; }

  // ---- the answer
  virtual float sink(const Call& c, const Row&, int h) const { return c.io.sink ? c.io.sink[h] : -kInf; }
  /// exp(lse) / (exp(lse) + exp(sink)).
  virtual float sink_factor(float lse, float sink) const { return lse == -kInf ? 0.f : 1.f / (1.f + std::exp(sink - lse)); }
  virtual float declared_lse(const Call& c, float lse, float sink) const {
    if (c.config.sink_in_lse && sink != -kInf) {
      const float m = std::max(lse, sink);
      if (m != kInf) lse = m + std::log(std::exp(lse - m) + std::exp(sink - m));
      else lse = kInf;
    }
    if (lse == -kInf && c.config.empty_lse == EmptyLse::pos_inf) return kInf;
    if (lse == -kInf && c.config.empty_lse == EmptyLse::large_negative) return -6e28f;
    return c.config.lse_base == LseBase::two ? lse * 1.44269504f : lse;
  }
  virtual uint16_t round_out(const Call& c, float x) const { return to_16(c.q_type(), x); }
  /// Writes one (row, head): acc [d_v] f32, final.
  virtual void store(const Call& c, const Row& row, int h, const float* acc, float lse) const {
    uint16_t* out = out_row(c, row, h);
    for (int d = 0; d < c.p.d_v; ++d) out[d] = round_out(c, acc[d]);
    if (c.config.lse_dtype == LseType::f32) *static_cast<float*>(lse_at(c, row, h)) = lse;
    if (c.config.lse_dtype == LseType::bf16) *static_cast<uint16_t*>(lse_at(c, row, h)) = to_bf16(lse);
  }

  template <class T>
  static const T* at(const void* base, int64_t bytes) {
    return reinterpret_cast<const T*>(static_cast<const uint8_t*>(base) + bytes);
  }
  template <class T>
  static T* at(void* base, int64_t bytes) {
    return reinterpret_cast<T*>(static_cast<uint8_t*>(base) + bytes);
  }

 protected:
  ~Steps() = default;
};

struct Healthy final : Steps {};

}  // namespace smla::cpu
