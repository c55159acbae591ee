// SPDX-License-Identifier: Apache-2.0
// What is right: sparse MLA in fp64, un-blocked, straight from the definition; and the sums from which the error budget of any declaration follows.
#pragma once
#include <Eigen/Dense>
#include <cstdint>
#include <span>
#include <vector>

#include "cases/inputs.h"

namespace smla {

using RowMatrixXd = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct OracleOptions {
  int threads = 1;              // over rows; never nested
  bool rounded_k = false;       // some kernel rounds K: fill B_k (one more GEMM pair, see README)
  bool rounded_q = false;       // some kernel rounds Q: fill B_q and C
  bool rounded_both = false;    // some kernel rounds both: fill B_kq
};

/// The oracle's answer for a block of tokens. Row index r = i * h_q + h for the i-th token of `tokens`. All fp64.
/// lse is BASE E, SINK EXCLUDED, -inf for an empty row (whose out is 0). Symbols are those of reference/README.md.
struct OracleBlock {
  int32_t h_q = 0, d_v = 0;
  std::vector<int64_t> tokens;
  RowMatrixXd out;                  // [rows][d_v]
  RowMatrixXd A, B;                 // [rows][d_v]: sum p^2 v^2; sum p^2 sx^2 v^2 with nothing rounded
  RowMatrixXd B_k, B_q, B_kq, C;    // as OracleOptions asks, else empty
  RowMatrixXd sum_v2;               // [tokens][d_v]
  RowMatrixXd v_min, v_max;         // [tokens][d_v]: the hull of v over the valid keys
  RowMatrixXd v_mean;               // [tokens][d_v]: mean over the valid keys (an impostor, and the answer of exact_mean)
  struct Scores {                   // the sums over keys that depend on what is rounded: one of these for each B
    Eigen::VectorXd b;              // sum p^2 sx^2
    Eigen::VectorXd lse_var;        // sum pt^2 sx^2
    Eigen::VectorXd sx_heavy;       // largest sx of a key with pt * exp(3 sx) > 2 %: above 0.2 the row is beyond the linearisation
  };
  Scores s, s_k, s_q, s_kq;
  Eigen::VectorXd lse, x_max;       // [rows]
  Eigen::VectorXd n;                // valid entries of the row
  Eigen::VectorXd p_max, sum_p2;    // final weights, sink included
  Eigen::VectorXd pt_max, sum_pt2;  // sink left out; n_eff = 1 / sum_pt2
  double generate_ms = 0, compute_ms = 0;
  int64_t rows() const { return static_cast<int64_t>(tokens.size()) * h_q; }
};

/// Decodes the cached rows with its own decoder (reference/decode.h) and its own index rule: an entry is valid if 0 <= index < num_slots and it stands before K_t.
/// Throws UsageError for a format that is not judged yet.
OracleBlock oracle(const Inputs& in, std::span<const int64_t> tokens, const OracleOptions& options = {});

}  // namespace smla
