// SPDX-License-Identifier: Apache-2.0
// From the oracle's sums and a declaration: sigma of every element, the limit of every LSE, and what a row's deviations amount to.
// Numbers only; the verdict is one separate line of policy (Limits). Derivation and calibration: reference/README.md.
#pragma once
#include <cstdint>
#include <span>

#include "cases/contract.h"
#include "reference/oracle.h"

namespace smla {

/// The limits, with the largest value seen on a healthy kernel beside each (reports/data/healthy.csv), so that drift shows before it fails.
struct Limits {
  double z_max = 6.0;
  double row_rms = 1.0, row_rms_peaked = 2.0, row_rms_score = 3.5;
  double peaked_n_eff = 32;
  double pooled_rms = 0.85;
  int pooled_min_rows = 8;
  double lse_ratio = 1.0;
};

/// One row (t, h) of a candidate against the oracle.
struct RowStats {
  bool judged = true;              // false: beyond the linearisation; hull, finiteness and lse decide
  bool empty = false;              // no valid index: out must be 0, lse the contract's value
  double z_max = 0;
  int32_t z_argmax = 0;            // channel
  double sum_z2 = 0, rms = 0;
  double rms_limit = 1;            // by the rule for this row (README, "pass")
  bool pooled = false;             // n_eff >= 32 and judged: counts in the pooled rms
  bool hull_ok = true;             // finite and inside the widened convex hull of v
  int32_t n_bad = 0;               // elements with z > z_max limit, or non-finite, or outside the hull where unjudged
  int32_t n_nonfinite_mismatch = 0;
  double lse_err = 0;              // |got - expected| in base e
  double lse_ratio = 0;            // err / limit; inf where non-finite positions differ
  bool ok(const Limits& limits = {}) const;
  bool out_ok(const Limits& limits = {}) const;
  bool lse_ok(const Limits& limits = {}) const;
};

/// `out`: d_v values of q's type, widened. `lse`: as stored by the kernel (its base, sink in or out as declared), widened to double; ignored if lse_dtype = none.
/// `split`: the row was divided (num_splits != 1): only then do partials of a declared type count. `sink`: of this head, or nullptr.
RowStats judge_row(const OracleBlock& block, int64_t row, const Inputs& in, const Contract& contract, bool split, std::span<const float> out, double lse,
                   const float* sink, const Limits& limits = {});

/// 3 sigma^2 of one row under a declaration, [d_v]; and the limit of |lse error|. For metamorphic relations between two candidates.
void row_sigma(const OracleBlock& block, int64_t row, const Inputs& in, const Contract& contract, bool split, std::span<double> sigma, double* lse_limit);

}  // namespace smla
