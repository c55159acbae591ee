// SPDX-License-Identifier: Apache-2.0
#include "reference/unabsorbed.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "reference/budget.h"
#include "reference/decode.h"

namespace smla {

ModelHead model_head(const Eigen::VectorXd& q, int32_t d_v, int32_t qk_nope, int32_t v_head, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto random = [&] { return uniform(generator); };
  const Eigen::VectorXd q_latent = q.head(d_v);
  ModelHead head;
  head.q_nope = Eigen::VectorXd::NullaryExpr(qk_nope, random);
  head.q_rope = q.tail(q.size() - d_v);
  head.W_UK = RowMatrixXd::NullaryExpr(qk_nope, d_v, random) * q_latent.norm() / std::sqrt(qk_nope * d_v);
  head.W_UK += head.q_nope * (q_latent - head.W_UK.transpose() * head.q_nope).transpose() / head.q_nope.squaredNorm();
  head.W_UV = RowMatrixXd::NullaryExpr(v_head, d_v, random);
  return head;
}

HeadOutput attend_unabsorbed(const ModelHead& head, const RowMatrixXd& K, double sm_scale, double sink) {
  const int64_t n = K.rows(), d_v = head.W_UK.cols(), d_rope = head.q_rope.size();
  std::vector<double> x(n);
  for (int64_t i = 0; i < n; ++i) {
    const Eigen::VectorXd k_nope = head.W_UK * K.row(i).head(d_v).transpose();
    x[i] = sm_scale * (head.q_nope.dot(k_nope) + head.q_rope.dot(K.row(i).tail(d_rope).transpose()));
  }
  const double x_max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double each : x) sum += std::exp(each - x_max);
  HeadOutput result;
  result.lse = x_max + std::log(sum);
  const double with_sink = sum + std::exp(sink - x_max);
  result.out = Eigen::VectorXd::Zero(head.W_UV.rows());
  for (int64_t i = 0; i < n; ++i) result.out += std::exp(x[i] - x_max) / with_sink * (head.W_UV * K.row(i).head(d_v).transpose());
  return result;
}

UnabsorbedError unabsorbed_error(const Inputs& in, const OracleBlock& block, int64_t row, int32_t qk_nope, int32_t v_head) {
  const Case& c = in.c;
  const int64_t t = block.tokens[row / block.h_q], h = row % block.h_q;
  const std::vector<int32_t> slots = valid_slots(in, t);
  if (slots.empty()) return {};
  RowMatrixXd K(slots.size(), c.d_qk);
  std::vector<uint8_t> bytes(in.row_bytes);
  for (size_t i = 0; i < slots.size(); ++i) {
    kv_row(in, slots[i], bytes.data());
    decode_row(c, bytes.data(), K.row(i).data());
  }
  std::vector<uint16_t> bits(c.d_qk);
  Eigen::VectorXd q(c.d_qk);
  q_row(in, t, static_cast<int32_t>(h), bits.data());
  decode16(bits.data(), c.q_dtype, c.d_qk, q.data());

  const ModelHead head = model_head(q, c.d_v, qk_nope, v_head, c.seed + row);
  const HeadOutput other = attend_unabsorbed(head, K, c.sm_scale, sink_of(in, h));
  const Eigen::VectorXd out = head.W_UV * block.out.row(row).transpose();
  const double v_max = (K.leftCols(c.d_v) * head.W_UV.transpose()).cwiseAbs().maxCoeff();
  return {(out - other.out).cwiseAbs().maxCoeff() / v_max, std::fabs(block.lse[row] - other.lse) / (1 + std::fabs(block.x_max[row]))};
}

}  // namespace smla
