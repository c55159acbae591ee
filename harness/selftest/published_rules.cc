// SPDX-License-Identifier: Apache-2.0
#include "harness/selftest/published_rules.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/decode.h"

namespace smla {
namespace {

constexpr PublishedRule kRules[] = {
    {"flashmla_out", "FlashMLA's tests, out: every |err| < 1e-3 or < 2.01/128 |ref|, and 1 - cosine of the tensor <= 5e-6"},
    {"flashmla", "the same, and lse: |err| < 1e-6 or < 8.01/65536 |lse|"},
    {"close_5e-2", "|err| <= 5e-2 + 5e-2 |ref|: FlashInfer's tests of its SM120 sparse MLA kernel"},
    {"close_1e-2", "|err| <= 1e-2 + 1e-2 |ref|: FlashInfer-Bench and KernelBench for bf16"},
    {"nmse_5e-4", "sum err^2 / sum ref^2 <= 5e-4 over the tensor: llama.cpp's FLASH_ATTN_EXT"},
    {"cosine_1e-3", "1 - 2 sum got ref / sum (got^2 + ref^2) < 1e-3 over the tensor: DeepGEMM's calc_diff"},
    {"benchdnn", "every |err| <= 8 (1 + keys) eps |ref| or <= eps sum p |v|: oneDNN's benchdnn, sdpa"},
};

/// Shape: [d_v].
std::vector<double> absolute_magnitude(const ComparedRow& row) {
  const Inputs& in = row.in;
  const Case& c = in.c;
  std::vector<uint16_t> q_bits(static_cast<size_t>(c.d_qk));
  q_row(in, row.t, row.h, q_bits.data());
  std::vector<double> q(q_bits.size()), scores, magnitude(static_cast<size_t>(c.d_v));
  decode16(q_bits.data(), c.q_dtype, c.d_qk, q.data());
  std::vector<std::vector<double>> keys;
  std::vector<uint8_t> bytes(static_cast<size_t>(in.row_bytes));
  for (int32_t j = 0; j < in.k_t(row.t); ++j) {
    const int32_t slot = in.indices[static_cast<size_t>(row.t * c.topk + j)];
    if (!in.is_valid(slot)) continue;
    std::vector<double>& k = keys.emplace_back(q.size());
    kv_row(in, slot, bytes.data());
    decode_row(c, bytes.data(), k.data());
    double x = 0;
    for (size_t d = 0; d < k.size(); ++d) x += q[d] * k[d];
    scores.push_back(x * c.sm_scale);
  }
  if (scores.empty()) return magnitude;
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& x : scores) sum += x = std::exp(x - max);
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t d = 0; d < magnitude.size(); ++d) magnitude[d] += scores[i] / sum * std::abs(keys[i][d]);
  return magnitude;
}

}  // namespace

std::span<const PublishedRule> published_rules() { return kRules; }

void PublishedRules::add(const ComparedRow& row, const RowStats& stats, Magnitudes& magnitudes) {
  const double eps = row.in.c.q_dtype == FloatType::bf16 ? 0x1p-7 : 0x1p-10;
  int64_t keys = 0;
  for (int32_t j = 0; j < row.in.k_t(row.t); ++j) keys += row.in.is_valid(row.in.indices[static_cast<size_t>(row.t * row.in.c.topk + j)]);
  const std::vector<double>* magnitude = nullptr;  // only where it decides
  for (size_t d = 0; d < row.out.size(); ++d) {
    const double got = row.out[d], ref = row.expected[d];
    if (!std::isfinite(got)) {  // what is expected is finite
      ++nonfinite_bad_;
      continue;
    }
    const double err = std::abs(got - ref), size = std::abs(ref);
    flashmla_bad_ += !(err < 1e-3 || err < 2.01 / 128 * size);
    close_5e2_bad_ += !(err <= 5e-2 + 5e-2 * size);
    close_1e2_bad_ += !(err <= 1e-2 + 1e-2 * size);
    if (!(err <= 8 * static_cast<double>(1 + keys) * eps * size)) {
      if (magnitude == nullptr) {
        std::vector<double>& held = magnitudes[{row.t, row.h}];
        if (held.empty()) held = absolute_magnitude(row);
        magnitude = &held;
      }
      benchdnn_bad_ += !(err <= eps * (*magnitude)[d]);
    }
    dot_ += got * ref;
    got2_ += got * got;
    ref2_ += ref * ref;
    err2_ += err * err;
  }
  lse_bad_ += !std::isfinite(stats.lse_ratio) || !(stats.lse_err < 1e-6 || stats.lse_err < 8.01 / 65536 * std::abs(row.lse));
}

bool PublishedRules::accepts(size_t rule) const {
  const double cosine_diff = got2_ + ref2_ > 0 ? 1 - 2 * dot_ / (got2_ + ref2_) : 0;
  const bool flashmla = nonfinite_bad_ == 0 && flashmla_bad_ == 0 && cosine_diff <= 5e-6;
  switch (rule) {
    case 0:
      return flashmla;
    case 1:
      return flashmla && lse_bad_ == 0;
    case 2:
      return nonfinite_bad_ == 0 && close_5e2_bad_ == 0;
    case 3:
      return nonfinite_bad_ == 0 && close_1e2_bad_ == 0;
    case 4:
      return nonfinite_bad_ == 0 && err2_ <= 5e-4 * ref2_;
    case 5:
      return nonfinite_bad_ == 0 && cosine_diff < 1e-3;
    default:
      return nonfinite_bad_ == 0 && benchdnn_bad_ == 0;
  }
}

}  // namespace smla
