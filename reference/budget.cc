// SPDX-License-Identifier: Apache-2.0
#include "reference/budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "reference/decode.h"

namespace smla {
namespace {

constexpr double kE = 0x1p-24;  // unit roundoff of fp32
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double square(double x) { return x * x; }

/// Unit roundoff that counts for an operand whose stored significands have roundoff `stored`: none where they fit the declared type, none for fp32,
/// whose rounding belongs to the fp32 arithmetic that every kernel is allowed.
double operand_roundoff(Rounding rounding, double stored, FloatType q_dtype) {
  const double u = unit_roundoff(rounding, q_dtype);
  return u > stored && u > kE ? u : 0;
}
double roundoff16(FloatType type) { return type == FloatType::bf16 ? 0x1p-8 : 0x1p-11; }
/// Of a cached value as stored: an e4m3 code times a power of two keeps 4 bits, times any fp32 scale up to 28.
double v_stored(const Case& c) {
  if (c.kv_format == KvFormat::bf16) return 0x1p-8;
  if (c.kv_format == KvFormat::fp16) return 0x1p-11;
  return c.scales == Scales::pow2 ? 0x1p-4 : 0x1p-28;
}
double k_stored(const Case& c) { return c.kv_format == KvFormat::fp8_656 ? std::min(v_stored(c), roundoff16(c.rope_dtype)) : v_stored(c); }

/// The factor by which the row as a whole misses the exact one: least squares in units of sigma, within what is allowed.
double common_factor(const OracleBlock& block, int64_t row, const RowBudget& budget, std::span<const float> out) {
  if (budget.common_min == budget.common_max) return 1;
  double dot = 0, norm2 = 0;
  for (int32_t d = 0; d < block.d_v; ++d) {
    const double weight = 1 / square(budget.sigma[d]), ref = block.out(row, d);
    dot += weight * out[d] * ref;
    norm2 += weight * ref * ref;
  }
  return norm2 > 0 && std::isfinite(dot) ? std::clamp(dot / norm2, budget.common_min, budget.common_max) : 1;
}

}  // namespace

Roundoff::Roundoff(const Contract& contract, const Case& c, bool split)
    : p(unit_roundoff(contract.p, c.q_dtype)),
      v(operand_roundoff(contract.v, v_stored(c), c.q_dtype)),
      part(split ? operand_roundoff(contract.part, 0, c.q_dtype) : 0),
      out(roundoff16(c.q_dtype)) {}

double sink_of(const Inputs& in, int64_t h) { return in.sink.empty() ? -kInfinity : in.sink[h]; }

ScoreError score_error(const Contract& contract, const Case& c) {
  return {operand_roundoff(contract.q, roundoff16(c.q_dtype), c.q_dtype), operand_roundoff(contract.k, k_stored(c), c.q_dtype),
          contract.acc == Acc::fp22};
}

double p_underflow(const Contract& contract, const Case& c) {
  // Where the largest P may be as small as 1/2, what is lost weighs twice. Folded into P, the scales of a tile and group are divided by a power of
  // two so that the largest is in [1/2, 1); the generator's lie within a factor of 2 of each other, so each is at least 1/4.
  const double smallest_factor = contract.p_max == PMax::one ? 1 : c.kv_format == KvFormat::fp8_656 ? 0.125 : 0.5;
  switch (contract.p == Rounding::q ? (c.q_dtype == FloatType::bf16 ? Rounding::bf16 : Rounding::fp16) : contract.p) {
    case Rounding::fp16:
      return 0x1p-25 / smallest_factor;
    case Rounding::e4m3:
      return 0x1p-10 / contract.p_scale / smallest_factor;
    default:
      return 0x1p-126 / smallest_factor;
  }
}
double out_underflow(FloatType q_dtype) { return q_dtype == FloatType::fp16 ? 0x1p-24 : 0x1p-126; }

void PooledRms::add(const RowStats& row, int64_t d_v) {
  if (!row.pooled) return;
  ++rows;
  elements += d_v;
  sum_z2 += row.sum_z2;
}
double PooledRms::value() const { return elements == 0 ? 0 : std::sqrt(sum_z2 / static_cast<double>(elements)); }

RowBudget row_budget(const OracleBlock& block, int64_t row, const Inputs& in, const Contract& contract, bool split) {
  const Case& c = in.c;
  const Roundoff u(contract, c, split);
  const ScoreError error = score_error(contract, c);
  const auto& scores = block.scores_for(error);
  const int64_t i = row / block.h_q, h = row % block.h_q;
  const double n = block.n[row];
  const double arithmetic2 = kE * kE * (n + 12) + (error.fp22 ? kEAcc * kEAcc * n / 32 : 0);
  const double of_A = square(u.p) + square(u.v) + square(u.part) + arithmetic2, of_out2 = square(u.part) + arithmetic2;
  const double p_eta2 = square(p_underflow(contract, c) * block.p_max[row]), out_eta = out_underflow(c.q_dtype);
  std::vector<double> q;
  if (error.u_q > 0) {
    std::vector<uint16_t> bits(c.d_qk);
    q_row(in, block.tokens[i], static_cast<int32_t>(h), bits.data());
    q.resize(c.d_qk);
    decode16(bits.data(), c.q_dtype, c.d_qk, q.data());
  }

  RowBudget budget;
  budget.sigma.resize(block.d_v);
  double sum = 0, sum_scores = 0;
  for (int32_t d = 0; d < block.d_v; ++d) {
    const double out = block.out(row, d), out2 = out * out;
    double from_scores = scores.B(row, d) + out2 * scores.b[row];
    if (error.u_q > 0) from_scores += square(error.u_q * c.sm_scale * q[d] * (block.C(row, d) - out2));
    const double var3 =
        of_A * block.A(row, d) + p_eta2 * block.sum_v2(i, d) + from_scores + of_out2 * out2 + square(std::max(u.out * std::fabs(out), out_eta));
    budget.sigma[d] = std::sqrt(var3 / 3);
    sum += var3;
    sum_scores += from_scores;
  }
  budget.score_share = sum_scores / sum;

  double lse_var = scores.lse_var[row];
  if (error.u_q > 0) {  // an error of q_c moves every score by sm_scale q_c k_c, their mean by as much with the mean of k
    const auto moved = c.sm_scale * Eigen::Map<const Eigen::ArrayXd>(q.data(), c.d_qk) * block.k_mean.row(row).transpose().array();
    lse_var += square(error.u_q) * (moved.square().sum() + square(moved.sum()) / 8);
  }
  const double sink = sink_of(in, h), lse = block.lse[row];
  if (std::isfinite(sink)) {
    const double moved = 6 * std::sqrt(lse_var / 3), kept = 1 + std::exp(sink - lse);
    budget.common_min = kept / (1 + std::exp(sink - lse + moved));
    budget.common_max = kept / (1 + std::exp(sink - lse - moved));
  }
  budget.lse = lse_budget({lse, block.x_max[row], lse_var, n, block.sum_pt2[row], block.pt_max[row], block.lost[row]}, sink, contract, c);
  return budget;
}

LseBudget lse_budget(const LseSums& sums, double sink, const Contract& contract, const Case& c) {
  if (!contract.sink_in_lse) sink = -kInfinity;
  const auto with_sink = [sink](double y) {  // log(exp(y) + exp(sink)), whose slope is at most 1 and largest above
    const double top = std::max(y, sink);
    return std::isinf(top) ? top : top + std::log1p(std::exp(-std::fabs(y - sink)));
  };
  double variance3 = sums.var + kE * kE * sums.n / 12, fixed = sums.lost;
  if (contract.row_sum == RowSum::rounded) {
    const double u_p = unit_roundoff(contract.p, c.q_dtype);
    variance3 += square(u_p) * sums.sum_pt2 + sums.n * square(p_underflow(contract, c) * sums.pt_max);
    fixed += u_p / 4;
  }
  LseBudget budget;
  budget.expected = with_sink(sums.lse);
  if (std::isinf(budget.expected)) return budget;
  const double magnitude = std::fabs(sums.lse) + std::fabs(sums.x_max) + (std::isinf(sink) ? 0 : std::fabs(sink));
  budget.random = with_sink(sums.lse + 6 * std::sqrt(variance3 / 3)) - budget.expected;
  budget.fixed = with_sink(sums.lse + fixed) - budget.expected + lse_rounding(budget.expected, magnitude, contract);
  return budget;
}

double fp32_rounding(double magnitude) { return 4 * kE * (magnitude + 1); }

double lse_rounding(double expected, double magnitude, const Contract& contract) {
  if (std::isinf(expected)) return 0;
  const double unit = contract.lse_base == LseBase::two ? std::numbers::ln2 : 1;  // of what is stored, in base e
  const int bits = contract.lse_dtype == LseType::bf16 ? 8 : 24;
  const double value = std::max(std::fabs(expected) / unit, 0x1p-126);
  return fp32_rounding(magnitude) + unit * std::ldexp(1.0, std::ilogb(value) - bits);
}

void judge_lse(double lse, const LseBudget& budget, const Contract& contract, RowStats& stats) {
  stats.lse_expected = budget.expected;
  if (contract.lse_dtype == LseType::none) return;
  const double got = contract.lse_base == LseBase::two ? lse * std::numbers::ln2 : lse;
  if (got == budget.expected) return;  // the same infinity included
  if (!std::isfinite(got) || !std::isfinite(budget.expected)) {
    ++stats.n_nonfinite_mismatch;
    stats.lse_ratio = stats.lse_err = kInfinity;
    return;
  }
  stats.lse_err = std::fabs(got - budget.expected);
  stats.lse_ratio = stats.lse_err / budget.limit();
}

void judge_empty_row(std::span<const float> out, double lse, double sink, const Contract& contract, RowStats& stats) {
  stats.empty = true;
  for (size_t d = 0; d < out.size(); ++d) {
    if (out[d] == 0) continue;
    if (stats.n_bad++ == 0) stats.z_argmax = static_cast<int32_t>(d);
    stats.n_nonfinite_mismatch += !std::isfinite(out[d]);
  }
  stats.hull_ok = stats.n_bad == 0;
  if (stats.n_bad > 0) stats.z_max = kInfinity;     // no error is allowed
  if (contract.sink_in_lse && sink > -kInfinity) {  // then the sink is all there is; -inf means no sink
    judge_lse(lse, {sink, 0, lse_rounding(sink, std::fabs(sink), contract)}, contract, stats);
  } else if (contract.empty_lse == EmptyLse::large_negative) {
    if (contract.lse_dtype != LseType::none && !(std::isfinite(lse) && lse <= -1e20)) stats.lse_ratio = stats.lse_err = kInfinity;
  } else {
    judge_lse(lse, {contract.empty_lse == EmptyLse::pos_inf ? kInfinity : -kInfinity}, contract, stats);
  }
}

RowStats judge_row(const OracleBlock& block, int64_t row, const Inputs& in, const Contract& contract, bool split, std::span<const float> out,
                   double lse, const Limits& limits) {
  RowStats stats;
  const int64_t i = row / block.h_q, h = row % block.h_q;
  const double sink = sink_of(in, h);
  if (block.n[row] == 0) {
    judge_empty_row(out, lse, sink, contract, stats);
    return stats;
  }
  const RowBudget budget = row_budget(block, row, in, contract, split);
  const ScoreError error = score_error(contract, in.c);
  const Roundoff u(contract, in.c, split);
  // Splits are merged with weights exp(lse_i - lse), in fp32: the sum of these is 1 but for the rounding of the lse.
  const double merged = fp32_rounding(std::fabs(block.lse[row]) + std::fabs(block.x_max[row]));
  const double widen = u.out + u.part + u.p + u.v + merged + (error.fp22 ? kEAcc * block.n[row] / 32 : 0), out_eta = out_underflow(in.c.q_dtype);
  stats.judged = !block.scores_for(error).beyond[row];
  stats.common = common_factor(block, row, budget, out);
  for (int32_t d = 0; d < block.d_v; ++d) {
    const double got = out[d], ref = block.out(row, d);
    double low = block.v_min(i, d), high = block.v_max(i, d);
    if (sink > -kInfinity) low = std::min(low, 0.0), high = std::max(high, 0.0);
    const bool finite = std::isfinite(got);
    const bool in_hull = finite && got >= low - widen * std::fabs(low) - out_eta && got <= high + widen * std::fabs(high) + out_eta;
    const double z = finite && got != ref ? std::fabs(got - stats.common * ref) / budget.sigma[d] : 0;
    stats.sum_z2 += z * z;
    if (z > stats.z_max) stats.z_max = z, stats.z_argmax = d;
    stats.hull_ok &= in_hull;
    stats.n_nonfinite_mismatch += !finite;
    stats.n_bad += stats.judged ? !finite || z > limits.z_max : !in_hull;
  }
  const double n_eff = 1 / block.sum_pt2[row];
  stats.rms = std::sqrt(stats.sum_z2 / block.d_v);
  stats.rms_limit = budget.score_share > limits.score_share ? limits.row_rms_score
                    : n_eff < limits.peaked_n_eff           ? limits.row_rms_peaked
                    : contract.p_max == PMax::any           ? limits.row_rms + square(block.pt_max[row]) / block.sum_pt2[row]
                                                            : limits.row_rms;
  stats.pooled = stats.judged && n_eff >= limits.peaked_n_eff;
  judge_lse(lse, budget.lse, contract, stats);
  return stats;
}

}  // namespace smla
