// SPDX-License-Identifier: Apache-2.0
// From the oracle's sums and a declaration: sigma of every element, the limit of every LSE, and what a row's deviations amount to.
// Numbers only; the verdict is one separate line of policy (Limits). Derivation and calibration: reference/README.md.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "cases/contract.h"
#include "reference/oracle.h"

namespace smla {

/// The limits. The largest values seen on healthy kernels stand beside them in reference/README.md, so that drift shows before it fails.
struct Limits {
  double z_max = 6.0;           // any element
  double row_rms = 1.0;         // over a row's d_v; with p_max=any 1 + pt_max^2 / sum pt^2
  double row_rms_peaked = 2.0;  // few keys carry the row: n_eff < peaked_n_eff
  double row_rms_score = 3.5;   // errors of the scores dominate: more than score_share of the row's sum of 3 sigma^2
  double peaked_n_eff = 32, score_share = 0.25;
  double pooled_rms = 0.85;  // over the judged rows with n_eff >= peaked_n_eff, where there are at least pooled_min_rows
  int64_t pooled_min_rows = 8;
  double lse_ratio = 1.0;
};

/// One row (t, h) of a candidate against the oracle.
struct RowStats {
  bool judged = true;    // false: beyond the linearisation; finiteness, the hull and lse decide
  bool empty = false;    // no valid index: out must be exactly 0, lse what the contract says
  double z_max = 0;      // largest |got - ref| / sigma. Families with an exact answer: 6 * error / what their rule allows
  int32_t z_argmax = 0;  // its channel
  double sum_z2 = 0, rms = 0;
  double rms_limit = 1;              // by the rule for this row
  bool pooled = false;               // judged and n_eff >= 32: counts in the pooled rms
  bool hull_ok = true;               // finite and inside the widened convex hull of v
  int32_t n_bad = 0;                 // elements that break a limit of their own: z, the hull where unjudged, 0 of an empty row, the exact answer
  int32_t n_nonfinite_mismatch = 0;  // out and lse
  double common = 1;                 // the row as a whole is this times the exact one: as far as its scores may have moved against the sink
  double lse_expected = std::numeric_limits<double>::quiet_NaN();  // base e; NaN where there is only a bound
  double lse_err = 0;                                              // |got - expected|, base e
  double lse_ratio = 0;  // lse_err / its limit; inf where only one of the two is finite or they are different infinities
  bool out_ok(const Limits& limits = {}) const { return n_bad == 0 && (!judged || (z_max <= limits.z_max && rms <= rms_limit)); }
  bool lse_ok(const Limits& limits = {}) const { return lse_ratio <= limits.lse_ratio; }
  bool ok(const Limits& limits = {}) const { return out_ok(limits) && lse_ok(limits); }
};

/// The rms of z over many rows: what finds a small bias that no row shows alone.
struct PooledRms {
  int64_t rows = 0, elements = 0;
  double sum_z2 = 0;
  void add(const RowStats& row, int64_t d_v);
  double value() const;  // 0 without rows
  bool ok(const Limits& limits = {}) const { return rows < limits.pooled_min_rows || value() <= limits.pooled_rms; }
};

/// What the oracle must be asked for so that rows of this declaration can be judged.
ScoreError score_error(const Contract& contract, const Case& c);

/// Judges row `row` of the block. `out`: d_v values of q's type, widened. `lse`: as the kernel stored it (its base, its sink convention), widened;
/// ignored if lse_dtype=none. `split`: the row's keys were divided (num_splits != 1): only then does the declared type of partials count.
RowStats judge_row(const OracleBlock& block, int64_t row, const Inputs& in, const Contract& contract, bool split, std::span<const float> out,
                   double lse, const Limits& limits = {});

/// What an lse should be, and how far from it a kernel of this declaration may be. Base e.
struct LseBudget {
  double expected = 0;           // by the contract's sink convention; +-inf possible
  double random = 0, fixed = 0;  // 6 standard deviations; and what bounds the rest
  double limit() const { return random + fixed; }
};
/// What it follows from: of a row without its sink. Default: of one key with all the weight.
struct LseSums {
  double lse = 0, x_max = 0;
  double var = 0;  // 3 variances of the lse from errors of scores
  double n = 1, sum_pt2 = 1, pt_max = 1, lost = 0;
};
LseBudget lse_budget(const LseSums& sums, double sink, const Contract& contract, const Case& c);

/// The budget of one row that is not empty.
struct RowBudget {
  std::vector<double> sigma;  // [d_v]
  double score_share = 0;     // part of sum 3 sigma^2 that comes from the scores
  // How far the row as a whole may stand from the exact one: what a sink leaves of it if all scores are off by 6 standard deviations of their
  // weighted mean. 1 without a sink. What is left then is judged by sigma.
  double common_min = 1, common_max = 1;
  LseBudget lse;
};
RowBudget row_budget(const OracleBlock& block, int64_t row, const Inputs& in, const Contract& contract, bool split);

/// Fills lse_err, lse_ratio and n_nonfinite_mismatch. `lse` as stored.
void judge_lse(double lse, const LseBudget& budget, const Contract& contract, RowStats& stats);
/// Fills all of a row that has no valid index. `sink`: of its head, -inf if none.
void judge_empty_row(std::span<const float> out, double lse, double sink, const Contract& contract, RowStats& stats);
/// What fp32 arithmetic on scores and lse of size `magnitude` may lose, base e.
double fp32_rounding(double magnitude);
/// The same and half an ulp of the declared type and base, for an lse near `expected`.
double lse_rounding(double expected, double magnitude, const Contract& contract);

/// What counts for P, V, split partials and out under a declaration: unit roundoffs, 0 where nothing is lost.
struct Roundoff {
  double p, v, part, out;
  Roundoff(const Contract& contract, const Case& c, bool split);
};
/// Unit roundoff of the short accumulator (Acc::fp22); a sum over n keys passes through it n / 32 times.
inline constexpr double kEAcc = 0x1p-14;
/// The sink of head h; -inf if there is none.
double sink_of(const Inputs& in, int64_t h);

/// What `contract` does to out and P below their ranges: half the smallest subnormal of P (fp16, e4m3), the smallest subnormal of out; 2^-126 where
/// flushing to zero is allowed.
double p_underflow(const Contract& contract, const Case& c);
double out_underflow(FloatType q_dtype);

}  // namespace smla
