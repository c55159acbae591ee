// SPDX-License-Identifier: Apache-2.0
// What is right: sparse MLA in fp64, straight from the definition; and the sums from which the error budget of any declaration follows.
#pragma once
#include <Eigen/Dense>
#include <cstdint>
#include <span>
#include <vector>

#include "cases/inputs.h"

namespace smla {

using RowMatrixXd = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// What a declaration does to the scores beyond fp32 arithmetic (score_error() in budget.h derives it). Default: nothing.
struct ScoreError {
  double u_q = 0, u_k = 0;  // unit roundoff that Q and K are rounded with; 0 = used exactly
  bool fp22 = false;        // the Q K accumulator keeps about 14 bits
  bool operator==(const ScoreError&) const = default;

  /// sx^2 = 3 variances of the score x = sm_scale q.k. norm2 = (|q| |k| sm_scale)^2; w = sm_scale^2 sum_c (q_c k_c)^2, read only if rounded().
  double sx2(double norm2, double w, double x, int32_t d_qk) const {
    constexpr double e2 = 0x1p-48, e_acc2 = 0x1p-28;
    double sum = (4 * e2 + (fp22 ? e_acc2 * d_qk / 32 : 0)) * norm2 + 16 * e2 * x * x + 0x1p-46;
    if (rounded()) sum += u_k * u_k * (w + x * x / 16) + u_q * u_q * (w + x * x / 8);
    return sum;
  }
  bool rounded() const { return u_q > 0 || u_k > 0; }
};

struct OracleOptions {
  int threads = 1;  // over tokens, or inside one token where there are fewer tokens than threads; results do not depend on it
  std::vector<ScoreError>
      score_errors;  // of the contracts to be judged; one more GEMM each (and one for all that round Q or K, one for Q), duplicates are free
};

/// The oracle's answer for a block of tokens. Row index r = i * h_q + h for the i-th token of `tokens`. All fp64.
/// lse is BASE E, SINK EXCLUDED, -inf for an empty row (whose out is 0). Symbols are those of reference/README.md; m = how often the row names key
/// i's slot.
struct OracleBlock {
  int32_t h_q = 0, d_v = 0;
  std::vector<int64_t> tokens;
  RowMatrixXd out;           // [rows][d_v]
  RowMatrixXd A;             // [rows][d_v]: sum m p^2 v^2
  RowMatrixXd C;             // [rows][d_v]: sum p v^2; empty, like the next, unless some score error rounds Q
  RowMatrixXd k_mean;        // [rows][d_qk]: sum pt k
  RowMatrixXd sum_v2;        // [tokens][d_v]: sum m v^2
  RowMatrixXd v_min, v_max;  // [tokens][d_v]: the hull of v over the valid keys
  RowMatrixXd v_mean;        // [tokens][d_v]: mean over the valid keys (an impostor, and the answer of exact_mean)
  struct Scores {            // the sums that depend on the error sx of the scores
    ScoreError error;
    RowMatrixXd B;                // [rows][d_v]: sum m p^2 sx^2 v^2
    Eigen::VectorXd b;            // [rows]: sum m p^2 sx^2
    Eigen::VectorXd lse_var;      // [rows]: sum m pt^2 sx^2, without what the rounding of Q adds: that is common to all keys (see k_mean)
    std::vector<uint8_t> beyond;  // [rows]: some key with pt exp(3 sx) > 2 % has sx > 0.2: beyond the linearisation
  };
  std::vector<Scores> scores;       // [0]: the default ScoreError; then the others asked for
  Eigen::VectorXd lse, x_max;       // [rows]
  Eigen::VectorXd n;                // [rows]: valid entries
  Eigen::VectorXd p_max;            // [rows]: largest final weight, sink included
  Eigen::VectorXd pt_max, sum_pt2;  // [rows]: sink left out; sum m pt^2; n_eff = 1 / sum_pt2
  Eigen::VectorXd lost;             // [rows]: share of the row sum that fp32 additions may lose, not at random (README, "lse")
  double generate_ms = 0, compute_ms = 0;
  int64_t rows() const { return static_cast<int64_t>(tokens.size()) * h_q; }
  /// Throws std::logic_error where the oracle was not asked for it.
  const Scores& scores_for(const ScoreError& error) const;
};

/// Decodes the cached rows with its own decoder (reference/decode.h) and its own index rule: an entry is valid if 0 <= index < num_slots and it
/// stands before K_t. Memory: about 16 * d_qk bytes a key of one token and thread, row_bytes a distinct slot of the block; the caller chooses the
/// block. Throws UsageError for a format that is not judged yet.
OracleBlock oracle(const Inputs& in, std::span<const int64_t> tokens, const OracleOptions& options = {});

/// Memory that oracle() takes for a block of so many tokens, at most.
double oracle_bytes(const Inputs& in, int64_t tokens, const OracleOptions& options);

/// The slots that token t attends, in order, by the reference's own rule: a LIST, a slot named twice counts twice.
std::vector<int32_t> valid_slots(const Inputs& in, int64_t t);

}  // namespace smla
