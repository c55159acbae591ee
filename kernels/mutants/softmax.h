// SPDX-License-Identifier: Apache-2.0
// Defects in scores, softmax, empty rows, LSE, and arithmetic.
#pragma once
#include <atomic>
#include <utility>

#include "kernels/cpu/split.h"
#include "kernels/cpu/steps.h"

namespace smla::mutants {

using namespace cpu;

// ---- the scale
struct SmScaleIgnored final : Steps {
  float sm_scale(const Call&) const override { return 1; }
};
struct SmScaleTwice final : Steps {
  float sm_scale(const Call& c) const override { return c.p.sm_scale * c.p.sm_scale; }
};
struct SmScaleDoubled final : Steps {
  float sm_scale(const Call& c) const override { return 2 * c.p.sm_scale; }
};
struct SmScaleAbsorbed final : Steps {
  float sm_scale(const Call& c) const override { return 1 / std::sqrt(static_cast<float>(c.p.d_qk)); }
};
struct SmScale192 final : Steps {
  float sm_scale(const Call&) const override { return 0.0721687836f; }
};
struct SmScaleYarn final : Steps {  // the square of 0.1 ln 40 + 1 taken out
  float sm_scale(const Call& c) const override { return c.p.sm_scale / 1.87386f; }
};
struct SmScaleInBf16 final : Steps {
  float sm_scale(const Call& c) const override { return from_bf16(to_bf16(c.p.sm_scale)); }
};

// ---- the running maximum and sum
struct MaxUnguarded final : Steps {
  float anchor(float m) const override { return m; }
};
struct FiniteFirstMax final : Steps {
  float first_max() const override { return -3e4f; }
};
struct FirstMaxZero final : Steps {
  float first_max() const override { return 0; }
};
struct MaxOfFirstTile final : Steps {
  float next_max(const Call&, float m, float tile_max) const override { return m == -kInf ? tile_max : m; }
};
struct MaxSharedByHeads final : Steps {
  float first_max() const override { return shared() = -kInf; }
  float next_max(const Call&, float m, float tile_max) const override { return shared() = std::max({shared(), m, tile_max}); }
  static float& shared() {
    thread_local float value = -kInf;
    return value;
  }
};
struct NoMax final : Steps {
  float next_max(const Call&, float, float) const override { return 0; }
};
struct AccNotRescaled final : Steps {
  Rescale rescale(float m_old, float m_new) const override { return {Steps::rescale(m_old, m_new).sum, 1}; }
};
struct SumNotRescaled final : Steps {
  Rescale rescale(float m_old, float m_new) const override { return {1, Steps::rescale(m_old, m_new).acc}; }
};
struct RescaleSkippedBelow8 final : Steps {
  Rescale rescale(float m_old, float m_new) const override { return m_new - m_old < 8 ? Rescale{1, 1} : Steps::rescale(m_old, m_new); }
};
struct SumEpsilon final : Steps {
  Finished finish(float m, float sum, bool split) const override { return Steps::finish(m, sum == 0.f ? 0.f : sum + 1e-4f, split); }
};
struct SumReusedInARace final : Steps {  // now and then the sum of the head before stands where this head's belongs; when depends on what ran before
  Finished finish(float m, float sum, bool split) const override {
    const float before = std::exchange(last(), sum);
    return Steps::finish(m, calls_.fetch_add(1) % 13 == 12 ? before : sum, split);
  }
  static float& last() {
    thread_local float value = 1;
    return value;
  }
  mutable std::atomic<int64_t> calls_{0};
};
struct ExpInBase2 final : Steps {
  float exp(float x) const override { return std::exp2(x); }
};
struct ExpCoarse final : Steps {  // ten bits of mantissa
  float exp(float x) const override { return std::bit_cast<float>(std::bit_cast<uint32_t>(fast_exp(x)) & 0xffffe000u); }
};
struct ExpCutAt8 final : Steps {
  float exp(float x) const override { return x < -8 ? 0 : Steps::exp(x); }
};

// ---- empty rows
struct SumUnguarded final : Steps {
  Finished finish(float m, float sum, bool) const override { return {m + std::log(sum), 1 / sum}; }
};
struct EmptyLeftAloneWhenSplit final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    if (lse != -kInf || SplitBody::splits(c) == 1) Steps::store(c, row, h, acc, lse);
  }
};
struct LeadingEmptyRowsUnguarded final : Steps {  // the guard looks at what the row before left behind
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    bool leading = lse == -kInf;
    for (int64_t t = 0; t < row.t && leading; ++t) {
      const Row other = Steps::row(c, t);
      for (int64_t i = 0, n = keys(c, other); i < n && leading; ++i) leading = !key(c, other, i).counts;
    }
    static const std::vector<float> nan(4096, NAN);
    Steps::store(c, row, h, leading ? nan.data() : acc, lse);
  }
};
template <int kKind>
struct EmptyLse final : Steps {
  float declared_lse(const Call& c, float lse, float sink) const override {
    constexpr float kValues[] = {0, -std::numeric_limits<float>::max(), kInf, NAN};
    return lse == -kInf ? kValues[kKind] : Steps::declared_lse(c, lse, sink);
  }
};
struct EmptyLseUnwritten final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    auto* at = static_cast<float*>(lse_at(c, row, h));
    const float kept = *at;
    Steps::store(c, row, h, acc, lse);
    if (lse == -kInf) *at = kept;
  }
};
struct EmptyOutUnwritten final : Steps {
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    if (lse != -kInf) Steps::store(c, row, h, acc, lse);
    else *static_cast<float*>(lse_at(c, row, h)) = lse;
  }
};

// ---- LSE and sink
struct LseInBase2 final : Steps {
  float declared_lse(const Call& c, float lse, float sink) const override { return Steps::declared_lse(c, lse, sink) * 1.44269504f; }
};
struct LseWithoutMax final : Steps {
  Finished finish(float m, float sum, bool split) const override {
    const Finished done = Steps::finish(m, sum, split);
    return {split || sum == 0.f ? done.lse : std::log(sum), done.scale};
  }
};
struct LseIsMax final : Steps {
  Finished finish(float m, float sum, bool split) const override {
    return {split || sum == 0.f ? Steps::finish(m, sum, split).lse : m, 1 / std::max(sum, 1e-30f)};
  }
};
struct LseInBf16 final : Steps {
  float declared_lse(const Call& c, float lse, float sink) const override { return from_bf16(to_bf16(Steps::declared_lse(c, lse, sink))); }
};
struct LseBiased final : Steps {
  float declared_lse(const Call& c, float lse, float sink) const override { return Steps::declared_lse(c, lse, sink) + 2e-5f; }
};
struct LseInBaseE final : Steps {  // of a kernel that declares base 2
  float declared_lse(const Call& c, float lse, float sink) const override { return Steps::declared_lse(c, lse, sink) * 0.693147181f; }
};
struct LseWithoutSink final : Steps {  // of a kernel that declares that it counts it
  float declared_lse(const Call& c, float lse, float) const override { return Steps::declared_lse(c, lse, -kInf); }
};
struct LseWithSink final : Steps {
  float declared_lse(const Call& c, float lse, float sink) const override {
    const float m = std::max(lse, sink);
    return std::isinf(m) ? m : Steps::declared_lse(c, m + std::log(std::exp(lse - m) + std::exp(sink - m)), sink);
  }
};
struct SinkUnguarded final : Steps {
  float sink_factor(float lse, float sink) const override { return lse == -kInf ? 0 : std::exp(lse) / (std::exp(lse) + std::exp(sink)); }
};
struct SinkAgainstJointMax final : Steps {  // +inf - +inf
  float sink_factor(float lse, float sink) const override {
    if (lse == -kInf) return 0;
    const float m = std::max(lse, sink);
    return std::exp(lse - m) / (std::exp(lse - m) + std::exp(sink - m));
  }
};
struct SinkPerSplit final : Steps {
  float sink(const Call& c, const Row& row, int h) const override {
    return Steps::sink(c, row, h) + std::log(static_cast<float>(SplitBody::splits(c)));
  }
};
struct SinkAgainstFirstTile final : Steps {  // exp(sink - max of a tile that has no key)
  float sink(const Call& c, const Row& row, int h) const override {
    bool any = !c.io.sink;
    const int64_t n = std::min<int64_t>(keys(c, row), kTile);
    for (int64_t i = 0; i < n; ++i) any |= key(c, row, i).counts;
    return any || n == 0 ? Steps::sink(c, row, h) : NAN;
  }
};

// ---- arithmetic
struct PTruncated final : Steps {
  void round_p(const Call& c, float* p, int n) const override {
    const uint32_t kept = c.q_type() == FloatType::bf16 ? 0xffff0000u : 0xffffe000u;
    for (int i = 0; i < n; ++i) p[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(p[i]) & kept);
  }
};
struct PSubnormalsFlushed final : Steps {
  void round_p(const Call& c, float* p, int n) const override {
    Steps::round_p(c, p, n);
    for (int i = 0; i < n; ++i)
      if (c.q_type() == FloatType::fp16 && p[i] < 0x1p-14f) p[i] = 0;
  }
};
struct AccInBf16 final : Steps {
  void accumulated(const Call&, float* acc, int n) const override {
    for (int i = 0; i < n; ++i) acc[i] = from_bf16(to_bf16(acc[i]));
  }
};
struct ProductInBf16 final : Steps {
  void weigh(const float* p, const float* v, int heads, int keys, int width, int begin, int end, const float* factor, float norm, float* acc,
             int d_v) const override {
    for (int h = 0; h < heads; ++h)
      for (int d = begin; d < end; ++d) {
        float part = 0;
        for (int key = 0; key < keys; ++key) part += from_bf16(to_bf16(p[h * kTile + key] * v[key * width + d]));
        acc[h * d_v + d] = acc[h * d_v + d] * factor[h] + norm * part;
      }
  }
};
struct ScoresInBf16 final : Steps {
  float masked(float x, bool counts) const override { return Steps::masked(from_bf16(to_bf16(x)), counts); }
};
struct OutTruncated final : Steps {
  uint16_t round_out(const Call& c, float x) const override {
    return c.q_type() == FloatType::bf16 ? static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)
                                         : static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_ZERO));
  }
};
struct OutShifted final : Steps {
  uint16_t round_out(const Call& c, float x) const override { return Steps::round_out(c, x + 1e-4f); }
};
struct QScaledAndRounded final : Steps {  // sm_scale goes into q, which is rounded again
  float load_q(const Call& c, const Row& row, int h, float* q) const override {
    const float factor = Steps::load_q(c, row, h, q);
    for (int d = 0; d < c.p.d_qk; ++d) q[d] = rounded(q[d] * c.p.sm_scale, Rounding::q, c.q_type());
    return factor / c.p.sm_scale;
  }
};
struct ValuesThroughFp16 final : Steps {
  void decode(const Call& c, const uint8_t* bytes, float* values, float* scale) const override {
    Steps::decode(c, bytes, values, scale);
    for (int d = 0; !c.fp8() && d < c.p.d_qk; ++d) values[d] = from_fp16(to_16(FloatType::fp16, values[d]));
  }
};
struct OutBiased final : Steps {
  uint16_t round_out(const Call& c, float x) const override { return Steps::round_out(c, x * (1 + 0x1p-9f)); }
};

// ---- values
struct ValuesApart : Steps {  // a defect of V alone
  bool loads_v_apart() const override { return true; }

 protected:
  ~ValuesApart() = default;
};
struct LastTileOfVDoubled final : ValuesApart {
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    Steps::load(c, row, i, key, side, values, scale);
    if (side != Side::v || i / kTile != (keys(c, row) - 1) / kTile) return;
    for (int d = 0; d < c.p.d_v; ++d) values[d] *= 2;
  }
};
struct OneValueWrong final : ValuesApart {
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    const bool wrong = side == Side::v && i > 0 && i == keys(c, row) / 2 && this->key(c, row, i - 1).load;
    Steps::load(c, row, i, wrong ? this->key(c, row, i - 1) : key, side, values, scale);
  }
};
struct ValuesSwizzled final : ValuesApart {
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    Steps::load(c, row, i, key, side, values, scale);
    if (side == Side::v && i % 2 == 1)
      for (int d = 0; d < c.p.d_v; d += 16) std::swap_ranges(values + d, values + d + 8, values + d + 8);
  }
};
struct RopeOmitted final : Steps {
  float load_q(const Call& c, const Row& row, int h, float* q) const override {
    const float factor = Steps::load_q(c, row, h, q);
    std::fill(q + c.p.d_v, q + c.p.d_qk, 0.f);
    return factor;
  }
};
struct RopeInValues final : ValuesApart {  // V taken from the end of the row, not from its start
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    Steps::load(c, row, i, key, side, values, scale);
    if (side == Side::v) std::copy(values + c.p.d_qk - c.p.d_v, values + c.p.d_qk, values);
  }
};
struct LastChannelsOfFirstHead final : Steps {  // a fragment of q that is loaded once
  float load_q(const Call& c, const Row& row, int h, float* q) const override {
    const float factor = Steps::load_q(c, row, h, q);
    if (h > 0) std::copy(q - 16, q, q + c.p.d_qk - 16);
    return factor;
  }
};

}  // namespace smla::mutants
