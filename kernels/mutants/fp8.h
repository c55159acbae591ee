// SPDX-License-Identifier: Apache-2.0
// Defects in reading rows of fp8_656.
#pragma once
#include "kernels/mutants/softmax.h"

namespace smla::mutants {

struct ScaleToPow2 final : Steps {
  float fp8_scale(float stored) const override { return std::bit_cast<float>(std::bit_cast<uint32_t>(stored) & 0xff800000u); }
};
struct ScaleIgnored final : Steps {
  float fp8_scale(float) const override { return 1; }
};
struct ScaleInBf16 final : Steps {
  float fp8_scale(float stored) const override { return from_bf16(to_bf16(stored)); }
};
struct ScaleInverted final : Steps {
  float fp8_scale(float stored) const override { return 1 / stored; }
};
/// A defect in a loaded key's values and scales.
template <void (*kChange)(const Call&, float* values, float* scale)>
struct Changed final : Steps {
  void decode(const Call& c, const uint8_t* bytes, float* values, float* scale) const override {
    Steps::decode(c, bytes, values, scale);
    if (c.fp8()) kChange(c, values, scale);
  }
};
using FirstScaleForAll = Changed<[](const Call&, float*, float* scale) { std::fill_n(scale + 1, 3, scale[0]); }>;
using ScalesShifted = Changed<[](const Call&, float*, float* scale) { std::rotate(scale, scale + 1, scale + 4); }>;
using GroupsOf64 = Changed<[](const Call&, float* values, float* scale) {
  for (int d = 0; d < Fp8Row656::kLatent; ++d) values[d] *= scale[std::min(d / 64, 3)] / scale[d / Fp8Row656::kGroup];
}>;
using ScaleOnRope = Changed<[](const Call& c, float* values, float* scale) {
  for (int d = Fp8Row656::kLatent; d < c.p.d_qk; ++d) values[d] *= scale[3];
}>;
using RopeThroughFp8 = Changed<[](const Call& c, float* values, float* scale) {
  for (int d = Fp8Row656::kLatent; d < c.p.d_qk; ++d) values[d] = round_e4m3(values[d] / scale[3]) * scale[3];
}>;
using SubnormalsFlushed = Changed<[](const Call&, float* values, float*) {
  for (int d = 0; d < Fp8Row656::kLatent; ++d)
    if (std::fabs(values[d]) < 0x1p-6f) values[d] = 0;
}>;
using BiasOfFnuz = Changed<[](const Call&, float* values, float*) {
  for (int d = 0; d < Fp8Row656::kLatent; ++d) values[d] /= 2;
}>;
using SignLost = Changed<[](const Call&, float* values, float*) {
  for (int d = 0; d < Fp8Row656::kLatent; ++d) values[d] = std::fabs(values[d]);
}>;
struct CodesOfE5m2 final : Steps {
  void decode_codes(const uint8_t* codes, float* values) const override {
    for (int d = 0; d < Fp8Row656::kLatent; ++d) values[d] = from_fp16(static_cast<uint16_t>(codes[d] << 8));
  }
};
struct RopeOfOtherType final : Steps {
  void decode_rope(const Call& c, const uint16_t* rope, float* values) const override {
    decode_16(c.p.rope_dtype == SMLA_BF16 ? FloatType::fp16 : FloatType::bf16, rope, values, Fp8Row656::kRope);
  }
};
template <Side kSide>
struct NoScaleOn final : ValuesApart {
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    Steps::load(c, row, i, key, side, values, scale);
    if (c.fp8() && side == kSide) std::fill_n(scale, 4, 1.f);
  }
};
template <Side kSide>
struct Pow2On final : ValuesApart {
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    Steps::load(c, row, i, key, side, values, scale);
    for (int group = 0; c.fp8() && side == kSide && group < 4; ++group) scale[group] = ScaleToPow2().fp8_scale(scale[group]);
  }
};
struct ScaleOfKeyBefore final : Steps {
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    Steps::load(c, row, i, key, side, values, scale);
    if (!c.fp8() || i == 0 || !key.load || !this->key(c, row, i - 1).load) return;
    std::vector<float> unused(static_cast<size_t>(c.p.d_qk));
    decode(c, kv_row(c, this->key(c, row, i - 1).slot), unused.data(), scale);
  }
};
struct ScaleOfTileBefore final : Steps {
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    Steps::load(c, row, i, key, side, values, scale);
    if (!c.fp8() || i < kTile || !key.load || !this->key(c, row, i - kTile).load) return;
    std::vector<float> unused(static_cast<size_t>(c.p.d_qk));
    decode(c, kv_row(c, this->key(c, row, i - kTile).slot), unused.data(), scale);
  }
};
struct LargestScaleForTile final : Steps {
  float fold(const float* scale, int stride, float* out) const override {
    const float norm = Steps::fold(scale, stride, out);
    std::fill_n(out, kTile, *std::max_element(out, out + kTile));
    return norm;
  }
};
struct NormLost final : Steps {
  float fold(const float* scale, int stride, float* out) const override { return Steps::fold(scale, stride, out), 1; }
};

}  // namespace smla::mutants
