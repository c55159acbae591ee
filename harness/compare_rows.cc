// SPDX-License-Identifier: Apache-2.0
#include "harness/compare_rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "reference/decode.h"
#include "reference/exact.h"

namespace smla {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
ComparatorDefect planted_defect = nullptr;

struct OutType {
  int mantissa_bits;   // stored ones
  int least_exponent;  // of the smallest normal number
};
constexpr OutType out_type(FloatType type) { return type == FloatType::bf16 ? OutType{7, -126} : OutType{10, -14}; }

double ulp(double ref, OutType type) {
  const int exponent = ref == 0 ? type.least_exponent : std::max(std::ilogb(ref), type.least_exponent);
  return std::ldexp(1.0, exponent - type.mantissa_bits);
}

/// What out(t, h, :) should be, in fp64.
void expected_out(const OracleBlock* block, int64_t row, const Inputs& in, int64_t t, int32_t h, std::vector<double>& expected) {
  expected.assign(static_cast<size_t>(in.c.d_v), 0.0);
  if (block != nullptr) {
    for (int32_t d = 0; d < in.c.d_v; ++d) expected[d] = block->out(row, d);
    return;
  }
  const int64_t slot = needle_slot(in, t, h);
  if (slot < 0 || (!in.sink.empty() && in.sink[h] == kInf)) return;
  std::vector<uint8_t> bytes(static_cast<size_t>(in.row_bytes));
  std::vector<double> k(static_cast<size_t>(in.c.d_qk));
  kv_row(in, slot, bytes.data());
  decode_row(in.c, bytes.data(), k.data());
  std::copy_n(k.begin(), in.c.d_v, expected.begin());
}

/// lse(t, h) by the contract's conventions, in BASE E; NaN where there is no oracle, or only a bound (empty_lse = large_negative).
double expected_lse(const OracleBlock* block, int64_t row, const Inputs& in, int32_t h, const Contract& contract) {
  if (block == nullptr) return std::numeric_limits<double>::quiet_NaN();
  const double lse = block->lse[row], s = contract.sink_in_lse && !in.sink.empty() ? in.sink[h] : -kInf, top = std::max(lse, s);
  if (top == -kInf)
    return contract.empty_lse == EmptyLse::neg_inf   ? -kInf
           : contract.empty_lse == EmptyLse::pos_inf ? kInf
                                                     : std::numeric_limits<double>::quiet_NaN();
  return top == kInf ? kInf : top + std::log(std::exp(lse - top) + std::exp(s - top));
}

}  // namespace

void plant_in_comparator(ComparatorDefect defect) { planted_defect = defect; }

Contract with_reference_precision(const Contract& contract) {
  Contract c = reference_contract();
  c.invalid_index = contract.invalid_index;
  c.padding = contract.padding;
  c.lse_dtype = contract.lse_dtype;
  c.lse_base = contract.lse_base;
  c.empty_lse = contract.empty_lse;
  c.sink_in_lse = contract.sink_in_lse;
  c.duplicates = contract.duplicates;
  return c;
}

RowComparer::RowComparer(const Inputs& in, const Contract& judged_by, bool split, const Limits& limits)
    : in_(in),
      contract_(judged_by),
      reference_(with_reference_precision(judged_by)),
      split_(split),
      has_lse_(judged_by.lse_dtype != LseType::none),
      limits_(limits),
      out_(static_cast<size_t>(in.c.d_v)) {
  figures_.out.tightest_rtol = std::ldexp(1.0, -out_type(in.c.q_dtype).mantissa_bits);
}

void RowComparer::add(const OracleBlock* block, std::span<const int64_t> tokens, const CandidateRows& rows) {
  const int32_t h_q = in_.c.h_q, d_v = in_.c.d_v;
  for (size_t i = 0; i < tokens.size(); ++i)
    for (int32_t h = 0; h < h_q; ++h) {
      const int64_t row = static_cast<int64_t>(i) * h_q + h;
      add_row(block, row, tokens[i], h, rows.out.subspan(row * d_v, d_v), has_lse_ ? rows.lse[row] : 0.0);
    }
}

void RowComparer::add_row(const OracleBlock* block, int64_t row, int64_t t, int32_t h, std::span<const uint16_t> bits, double lse) {
  RowFigures& f = figures_;
  const int32_t d_v = in_.c.d_v;
  for (int32_t d = 0; d < d_v; ++d) out_[d] = static_cast<float>(decode16(bits[d], in_.c.q_dtype));
  expected_out(block, row, in_, t, h, expected_);

  const bool exact = is_exact_family(in_.c.values);
  std::string diagnosis;
  RowStats stats = exact ? judge_exact_row(block, row, in_, t, h, contract_, split_, out_, lse, limits_, &diagnosis)
                         : judge_row(*block, row, in_, contract_, split_, out_, lse, limits_);
  const RowStats plain = exact || contract_ == reference_ ? stats : judge_row(*block, row, in_, reference_, split_, out_, lse, limits_);
  if (planted_defect != nullptr) planted_defect({t / in_.c.s_q, h, out_, lse}, stats);
  ++f.rows;
  f.rows_unjudged += !stats.judged;
  if (f.diagnosis.empty()) f.diagnosis = diagnosis;

  // out
  TensorFigures& out = f.out;
  out.n_elem += d_v;
  out.n_bad += stats.n_bad;
  out.n_bad_rows += !stats.out_ok(limits_);
  double dot = 0, got2 = 0, ref2 = 0;
  int32_t worst_d = stats.z_argmax;
  bool nonfinite = false;
  const OutType type = out_type(in_.c.q_dtype);
  for (int32_t d = 0; d < d_v; ++d) {
    const double got = out_[d], ref = expected_[d];
    if (std::isfinite(got) != std::isfinite(ref)) {
      if (!nonfinite) worst_d = d;
      nonfinite = true;
      ++out.n_nonfinite_mismatch;
      continue;
    }
    const double err = std::abs(got - ref);
    out.abs_err_max = std::max(out.abs_err_max, err);
    if (std::abs(ref) >= std::ldexp(1.0, type.least_exponent)) out.rel_err_max = std::max(out.rel_err_max, err / std::abs(ref));
    out.ulp_err_max = std::max(out.ulp_err_max, err / ulp(ref, type));
    out.tightest_atol = std::max(out.tightest_atol, err - out.tightest_rtol * std::abs(ref));
    dot += got * ref;
    got2 += got * got;
    ref2 += ref * ref;
  }
  if (ref2 > 0) out.cos_diff_worst_row = std::max(out.cos_diff_worst_row, got2 > 0 ? 1 - dot / std::sqrt(got2 * ref2) : 1.0);
  const double out_rank = nonfinite ? kInf : stats.z_max;
  if (out_rank > worst_out_rank_) {
    worst_out_rank_ = out_rank;
    out.worst_index = {t / in_.c.s_q, t % in_.c.s_q, h, worst_d};
    out.worst_got = out_[worst_d];
    out.worst_ref = expected_[worst_d];
  }
  if (stats.judged) {
    out.z_max = std::max(out.z_max, stats.z_max);
    f.z_row_rms_max = std::max(f.z_row_rms_max, stats.rms);
    f.row_rms_share_max = std::max(f.row_rms_share_max, stats.rms / stats.rms_limit);
  }
  if (plain.judged) f.z_row_rms_reference = std::max(f.z_row_rms_reference, plain.rms);
  f.pooled.add(stats, d_v);

  // lse
  if (!has_lse_) return;
  TensorFigures& l = f.lse;
  ++l.n_elem;
  const bool lse_bad = !stats.lse_ok(limits_);
  l.n_bad += lse_bad;
  l.n_bad_rows += lse_bad;
  const double got = contract_.lse_base == LseBase::two ? lse * std::numbers::ln2 : lse;
  const double ref = expected_lse(block, row, in_, h, contract_);
  if (std::isfinite(stats.lse_err)) {
    l.abs_err_max = std::max(l.abs_err_max, stats.lse_err);
    if (std::isfinite(ref) && ref != 0) l.rel_err_max = std::max(l.rel_err_max, stats.lse_err / std::abs(ref));
    f.lse_err_max = std::max(f.lse_err_max, stats.lse_err);
  }
  if (!std::isfinite(stats.lse_ratio)) ++l.n_nonfinite_mismatch;
  f.lse_ratio_max = std::max(f.lse_ratio_max, stats.lse_ratio);
  if (stats.lse_ratio > worst_lse_rank_) {
    worst_lse_rank_ = stats.lse_ratio;
    l.worst_index = {t / in_.c.s_q, t % in_.c.s_q, h};
    l.worst_got = got;
    l.worst_ref = ref;
  }
}

double needle_coverage(const Inputs& in) {
  std::set<int32_t> covered;
  int32_t longest = 0;
  for (int64_t t = 0; t < in.tokens(); ++t) {
    const int32_t k_t = in.k_t(t);
    const int32_t* list = in.indices.data() + t * in.c.topk;
    longest = std::max(longest, k_t);
    for (int32_t h = 0; h < in.c.h_q; ++h) {
      const int64_t slot = needle_slot(in, t, h);
      const int32_t* at = std::find(list, list + k_t, static_cast<int32_t>(slot));
      if (slot >= 0 && at != list + k_t) covered.insert(static_cast<int32_t>(at - list));
    }
  }
  return longest == 0 ? 0 : static_cast<double>(covered.size()) / longest;
}

}  // namespace smla
