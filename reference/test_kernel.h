// SPDX-License-Identifier: Apache-2.0
// For this room's tests: a healthy kernel in fp32 with P in a 16-bit type, and faults to plant in it.
#pragma once
#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cases/inputs.h"
#include "reference/budget.h"
#include "reference/decode.h"

namespace smla::test {

/// To 8 (bf16) or 11 (fp16) bits, to nearest even or towards zero; the range is not looked at.
inline float round16(float x, FloatType type, bool truncate = false) {
  const int dropped = type == FloatType::bf16 ? 16 : 13;
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if (!truncate) bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
  return std::bit_cast<float>(bits >> dropped << dropped);
}

enum class Fault {
  none,
  key_dropped,
  key_doubled,
  key_of_a_neighbour,
  v_of_one_key,
  rope_omitted,
  scale_wrong,
  heads_swapped,
  one_head_zero,
  zeros,
  mean_v,
  sink_ignored,
  out_truncated,
  p_truncated,
  merge_by_average,
  lse_of_one_key_more,
  out_nan
};
struct Kernel {
  Fault fault = Fault::none;
  int splits = 1;
  bool p_exact = false;  // else in q's type
  bool row_sum_rounded = false;
};
struct Output {
  Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> out;  // [h_q][d_v], values of q's type
  std::vector<double> lse;                                                    // [h_q] base e, sink excluded
};

/// Token t. The faulty key is the middle one of the row.
inline Output run(const Inputs& in, int64_t t, const Kernel& kernel) {
  using Matrix = decltype(Output::out);
  constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f, kMinusInf = -std::numeric_limits<float>::infinity();
  const Case& c = in.c;
  const auto row_of = [&](int64_t slot) {
    std::vector<uint8_t> bytes(in.row_bytes);
    Eigen::VectorXd values(c.d_qk);
    kv_row(in, slot, bytes.data());
    decode_row(c, bytes.data(), values.data());
    return Eigen::VectorXf(values.cast<float>());
  };
  std::vector<int64_t> slots, fault_slots;
  for (int32_t k = 0; k < in.k_t(t); ++k)
    if (const int32_t slot = in.indices[t * c.topk + k]; slot >= 0 && slot < in.num_slots) slots.push_back(slot);
  const auto middle = static_cast<int64_t>(slots.size() / 2);
  if (kernel.fault == Fault::key_dropped) slots.erase(slots.begin() + middle);
  if (kernel.fault == Fault::key_doubled) slots.push_back(slots[middle]);
  if (kernel.fault == Fault::key_of_a_neighbour) slots[middle] ^= 1;
  const auto n = static_cast<int64_t>(slots.size());
  Matrix Q(c.h_q, c.d_qk), K(n, c.d_qk);
  std::vector<uint16_t> bits(c.d_qk);
  for (int32_t h = 0; h < c.h_q; ++h) {
    q_row(in, t, h, bits.data());
    for (int32_t d = 0; d < c.d_qk; ++d) Q(h, d) = static_cast<float>(decode16(bits[d], c.q_dtype));
  }
  for (int64_t k = 0; k < n; ++k) K.row(k) = row_of(slots[k]).transpose();
  Matrix V = K.leftCols(c.d_v);
  if (kernel.fault == Fault::v_of_one_key) V.row(middle) = row_of(slots[middle] ^ 1).head(c.d_v).transpose();
  if (kernel.fault == Fault::rope_omitted) Q.rightCols(c.d_qk - c.d_v).setZero();

  const float scale = c.sm_scale * kLog2e * (kernel.fault == Fault::scale_wrong ? 1.1f : 1.f);
  const Matrix S = Q * K.transpose();
  Output result;
  result.out = Matrix::Zero(c.h_q, c.d_v);
  result.lse.assign(c.h_q, kMinusInf);
  for (int32_t h = 0; h < c.h_q && n > 0; ++h) {
    const int64_t splits = std::min<int64_t>(kernel.splits, n);
    std::vector<Eigen::RowVectorXf> parts;
    std::vector<float> lses;  // base 2
    for (int64_t split = 0; split < splits; ++split) {
      const int64_t first = n * split / splits, count = n * (split + 1) / splits - first;
      const float m = S.row(h).segment(first, count).maxCoeff() * scale;
      Eigen::RowVectorXf P(count);
      float sum = 0;
      for (int64_t k = 0; k < count; ++k) {
        const float p = exp2f(S(h, first + k) * scale - m);
        P[k] = kernel.p_exact ? p : round16(p, c.q_dtype, kernel.fault == Fault::p_truncated);
        sum += kernel.row_sum_rounded ? P[k] : p;
      }
      parts.push_back(P * V.middleRows(first, count) * (1 / sum));
      lses.push_back(m + log2f(sum));
    }
    const float m = *std::max_element(lses.begin(), lses.end());
    float sum = 0;
    for (const float lse : lses) sum += exp2f(lse - m);
    for (int64_t split = 0; split < splits; ++split)
      result.out.row(h) += parts[split] * (kernel.fault == Fault::merge_by_average ? 1.f / static_cast<float>(splits) : exp2f(lses[split] - m) / sum);
    const float lse2 = m + log2f(sum);
    result.lse[h] = lse2 * kLn2;
    if (!in.sink.empty() && kernel.fault != Fault::sink_ignored) result.out.row(h) *= 1 / (1 + exp2f(in.sink[h] * kLog2e - lse2));
    if (kernel.fault == Fault::mean_v) result.out.row(h) = V.colwise().mean();
    if (kernel.fault == Fault::lse_of_one_key_more) result.lse[h] = std::log1p(1.0 / static_cast<double>(n)) + result.lse[h];
  }
  if (kernel.fault == Fault::heads_swapped) {
    for (int32_t h = 0; h + 1 < c.h_q; h += 2) result.out.row(h).swap(result.out.row(h + 1)), std::swap(result.lse[h], result.lse[h + 1]);
  }
  if (kernel.fault == Fault::one_head_zero) result.out.row(0).setZero();
  if (kernel.fault == Fault::zeros) result.out.setZero();
  if (kernel.fault == Fault::out_nan) result.out(0, 0) = NAN;
  result.out = result.out.unaryExpr([&](float x) { return std::isnan(x) ? x : round16(x, c.q_dtype, kernel.fault == Fault::out_truncated); });
  for (double& lse : result.lse) lse = static_cast<float>(lse);
  return result;
}

}  // namespace smla::test
