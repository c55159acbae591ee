// SPDX-License-Identifier: Apache-2.0
// The un-absorbed form, as the model is written: keys and values are projected up for every head. A second oracle, which shares only the decoder with
// the first.
#pragma once
#include <Eigen/Dense>
#include <cstdint>

#include "reference/oracle.h"

namespace smla {

/// One head of the model and its query. c = the latent, the first d_v values of a cached row; the rest is RoPE and has no projection.
struct ModelHead {
  RowMatrixXd W_UK;        // [qk_nope][d_v]: k_nope = W_UK c
  RowMatrixXd W_UV;        // [v_head][d_v]:  v = W_UV c
  Eigen::VectorXd q_nope;  // [qk_nope]: absorbed into q_latent = q_nope W_UK
  Eigen::VectorXd q_rope;  // [d_qk - d_v]
};

/// A head whose absorbed query is exactly `q` [d_qk]: random q_nope, W_UV and W_UK, the last corrected by rank one so that q_nope W_UK = q's latent
/// part.
ModelHead model_head(const Eigen::VectorXd& q, int32_t d_v, int32_t qk_nope, int32_t v_head, uint64_t seed);

struct HeadOutput {
  Eigen::VectorXd out;  // [v_head]
  double lse = 0;       // BASE E, SINK EXCLUDED
};
/// Attends with x = sm_scale (q_nope.k_nope + q_rope.k_rope), one key after the other. K [n][d_qk], n > 0: decoded rows. sink: -inf = none.
HeadOutput attend_unabsorbed(const ModelHead& head, const RowMatrixXd& K, double sm_scale, double sink);

/// How far a row of the block is from the un-absorbed form of the same query, for random weights of a head of that size.
struct UnabsorbedError {
  double out = 0;                          // largest |W_UV out - out'|, relative to the largest |v|
  double lse = 0;                          // relative to 1 + |x_max|
  static constexpr double kLimit = 1e-12;  // largest seen: 5e-16
  bool ok() const { return out <= kLimit && lse <= kLimit; }
};
UnabsorbedError unabsorbed_error(const Inputs& in, const OracleBlock& block, int64_t row, int32_t qk_nope, int32_t v_head);

}  // namespace smla
