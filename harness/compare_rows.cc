// SPDX-License-Identifier: Apache-2.0
#include "harness/compare_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "reference/decode.h"
#include "reference/exact.h"
#include "reference/parallel.h"

namespace smla {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double TensorFigures::*kErrors[] = {&TensorFigures::abs_err_max,        &TensorFigures::rel_err_max, &TensorFigures::ulp_err_max,
                                              &TensorFigures::cos_diff_worst_row, &TensorFigures::z_max,       &TensorFigures::tightest_atol};

struct OutType {
  int mantissa_bits;   // stored ones
  int least_exponent;  // of the smallest normal number
};
constexpr OutType out_type(FloatType type) { return type == FloatType::bf16 ? OutType{7, -126} : OutType{10, -14}; }

/// The exponent bits of a double are read and written as they are: libm takes as long as all the rest of an element.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }
double ulp(double ref, OutType type) {
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(ref) >> 52 & 0x7ff) - 1023;
  return power_of_two(std::max(exponent, type.least_exponent) - type.mantissa_bits);
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

void add(TensorFigures& sum, const TensorFigures& later, bool worse) {
  for (int64_t TensorFigures::*count :
       {&TensorFigures::n_elem, &TensorFigures::n_bad, &TensorFigures::n_bad_rows, &TensorFigures::n_nonfinite_mismatch})
    sum.*count += later.*count;
  for (double TensorFigures::*largest : kErrors) sum.*largest = std::max(sum.*largest, later.*largest);
  if (!worse) return;
  sum.worst_index = later.worst_index;
  sum.worst_got = later.worst_got;
  sum.worst_ref = later.worst_ref;
}

}  // namespace

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

RowComparer::RowComparer(const Inputs& in, const Contract& judged_by, bool split, RowHook hook, const Limits& limits)
    : in_(in),
      contract_(judged_by),
      reference_(with_reference_precision(judged_by)),
      split_(split),
      has_lse_(judged_by.lse_dtype != LseType::none),
      hook_(std::move(hook)),
      limits_(limits) {
  seen_.figures.out.tightest_rtol = power_of_two(-out_type(in.c.q_dtype).mantissa_bits);
}

void RowComparer::Seen::add(const Seen& later) {
  RowFigures& f = figures;
  const RowFigures& l = later.figures;
  smla::add(f.out, l.out, later.worst_out_rank > worst_out_rank);
  smla::add(f.lse, l.lse, later.worst_lse_rank > worst_lse_rank);
  worst_out_rank = std::max(worst_out_rank, later.worst_out_rank);
  worst_lse_rank = std::max(worst_lse_rank, later.worst_lse_rank);
  for (double RowFigures::*largest : {&RowFigures::z_row_rms_max, &RowFigures::z_row_rms_reference, &RowFigures::row_rms_share_max,
                                      &RowFigures::lse_err_max, &RowFigures::lse_ratio_max})
    f.*largest = std::max(f.*largest, l.*largest);
  f.pooled.rows += l.pooled.rows;
  f.pooled.elements += l.pooled.elements;
  f.pooled.sum_z2 += l.pooled.sum_z2;
  f.rows += l.rows;
  f.rows_unjudged += l.rows_unjudged;
  if (f.diagnosis.empty()) f.diagnosis = l.diagnosis;
}

void RowComparer::add(const OracleBlock* block, std::span<const int64_t> tokens, const CandidateRows& rows, int threads) {
  constexpr int64_t kRows = 32;  // of a task: fixed, so that sums do not depend on the threads
  const int32_t h_q = in_.c.h_q, d_v = in_.c.d_v;
  const int64_t count = std::ssize(tokens) * h_q;
  std::vector<Seen> parts(static_cast<size_t>((count + kRows - 1) / kRows));
  parallel_for(hook_ ? 1 : threads, std::ssize(parts), [&](int64_t task, int) {
    for (int64_t row = task * kRows; row < std::min(count, (task + 1) * kRows); ++row)
      add_row(parts[task], block, row, tokens[row / h_q], static_cast<int32_t>(row % h_q), rows.out.subspan(row * d_v, d_v),
              has_lse_ ? rows.lse[row] : 0.0);
  });
  for (const Seen& part : parts) seen_.add(part);
}

void RowComparer::add_row(Seen& seen, const OracleBlock* block, int64_t row, int64_t t, int32_t h, std::span<const uint16_t> bits, double lse) const {
  RowFigures& f = seen.figures;
  const int32_t d_v = in_.c.d_v;
  std::vector<float> out_values(static_cast<size_t>(d_v));
  std::vector<double> expected;
  for (int32_t d = 0; d < d_v; ++d) out_values[d] = static_cast<float>(decode16(bits[d], in_.c.q_dtype));
  expected_out(block, row, in_, t, h, expected);

  const bool exact = is_exact_family(in_.c.values);
  std::string diagnosis;
  RowStats stats = judge_row_of_family(block, row, in_, t, h, contract_, split_, out_values, lse, limits_, &diagnosis);
  const RowStats plain = exact || contract_ == reference_ ? stats : judge_row(*block, row, in_, reference_, split_, out_values, lse, limits_);
  if (hook_) hook_({in_, t, h, out_values, lse, expected}, stats);
  ++f.rows;
  f.rows_unjudged += !stats.judged;
  if (f.diagnosis.empty()) f.diagnosis = diagnosis;
  if (plain.judged) f.z_row_rms_reference = std::max(f.z_row_rms_reference, plain.rms);
  const std::vector<int64_t> place{t / in_.c.s_q, t % in_.c.s_q, h};
  add_out(seen, stats, place, out_values, expected);
  if (has_lse_) add_lse(seen, stats, place, lse);
}

void RowComparer::add_out(Seen& seen, const RowStats& stats, const std::vector<int64_t>& place, std::span<const float> got_values,
                          std::span<const double> ref_values) const {
  RowFigures& f = seen.figures;
  TensorFigures& out = f.out;
  out.n_elem += in_.c.d_v;
  out.n_bad += stats.n_bad;
  out.n_bad_rows += !stats.out_ok(limits_);
  double dot = 0, got2 = 0, ref2 = 0;
  int32_t worst_d = stats.z_argmax;
  bool nonfinite = false;
  const OutType type = out_type(in_.c.q_dtype);
  const double least_normal = power_of_two(type.least_exponent), rtol = power_of_two(-type.mantissa_bits);
  for (int32_t d = 0; d < in_.c.d_v; ++d) {
    const double got = got_values[d], ref = ref_values[d];
    if (std::isfinite(got) != std::isfinite(ref)) {
      if (!nonfinite) worst_d = d;
      nonfinite = true;
      ++out.n_nonfinite_mismatch;
      continue;
    }
    const double err = std::abs(got - ref);
    out.abs_err_max = std::max(out.abs_err_max, err);
    if (std::abs(ref) >= least_normal) out.rel_err_max = std::max(out.rel_err_max, err / std::abs(ref));
    out.ulp_err_max = std::max(out.ulp_err_max, err / ulp(ref, type));
    out.tightest_atol = std::max(out.tightest_atol, err - rtol * std::abs(ref));
    dot += got * ref;
    got2 += got * got;
    ref2 += ref * ref;
  }
  if (ref2 > 0) out.cos_diff_worst_row = std::max(out.cos_diff_worst_row, got2 > 0 ? 1 - dot / std::sqrt(got2 * ref2) : 1.0);
  const double out_rank = nonfinite ? kInf : stats.z_max;
  if (out_rank > seen.worst_out_rank) {
    seen.worst_out_rank = out_rank;
    out.worst_index = place;
    out.worst_index.push_back(worst_d);
    out.worst_got = got_values[worst_d];
    out.worst_ref = ref_values[worst_d];
  }
  if (stats.judged) {
    out.z_max = std::max(out.z_max, stats.z_max);
    f.z_row_rms_max = std::max(f.z_row_rms_max, stats.rms);
    f.row_rms_share_max = std::max(f.row_rms_share_max, stats.rms / stats.rms_limit);
  }
  if (nonfinite) {
    for (double TensorFigures::*error : kErrors) out.*error = kInf;
    f.z_row_rms_max = f.z_row_rms_reference = f.row_rms_share_max = kInf;
  }
  f.pooled.add(stats, in_.c.d_v);
}

void RowComparer::add_lse(Seen& seen, const RowStats& stats, const std::vector<int64_t>& place, double lse) const {
  RowFigures& f = seen.figures;
  TensorFigures& l = f.lse;
  ++l.n_elem;
  const bool lse_bad = !stats.lse_ok(limits_);
  l.n_bad += lse_bad;
  l.n_bad_rows += lse_bad;
  const double got = contract_.lse_base == LseBase::two ? lse * std::numbers::ln2 : lse;
  const double ref = stats.lse_expected;
  l.abs_err_max = std::max(l.abs_err_max, stats.lse_err);
  if (std::isfinite(ref) && ref != 0) l.rel_err_max = std::max(l.rel_err_max, stats.lse_err / std::abs(ref));
  f.lse_err_max = std::max(f.lse_err_max, stats.lse_err);
  if (!std::isfinite(stats.lse_ratio)) ++l.n_nonfinite_mismatch;
  f.lse_ratio_max = std::max(f.lse_ratio_max, stats.lse_ratio);
  if (stats.lse_ratio > seen.worst_lse_rank) {
    seen.worst_lse_rank = stats.lse_ratio;
    l.worst_index = place;
    l.worst_got = got;
    l.worst_ref = ref;
  }
}

}  // namespace smla
