// SPDX-License-Identifier: Apache-2.0
#include "harness/rows.h"

#include <fmt/format.h>

#include "reference/exact.h"

namespace smla {
namespace {

Flag& column_of(AccuracyRow& row, CheckColumn column) {
  switch (column) {
    case CheckColumn::guards:
      return row.guards_ok;
    case CheckColumn::outputs_written:
      return row.outputs_written_ok;
    case CheckColumn::determinism:
      return row.determinism_ok;
    case CheckColumn::poison:
      return row.poison_ok;
    case CheckColumn::metamorphic:
      break;
  }
  return row.metamorphic_ok;
}

void fill(AccuracyRow& row, const TensorFigures& f) {
  row.n_elem = f.n_elem;
  row.n_bad = f.n_bad;
  row.n_bad_rows = f.n_bad_rows;
  row.n_nonfinite_mismatch = f.n_nonfinite_mismatch;
  row.abs_err_max = f.abs_err_max;
  row.rel_err_max = f.rel_err_max;
  for (size_t i = 0; i < f.worst_index.size(); ++i) row.worst_index += fmt::format("{}{}", i == 0 ? "" : "|", f.worst_index[i]);
  row.worst_got.value = f.worst_got;
  row.worst_ref.value = f.worst_ref;
}

}  // namespace

Common common_of(const Common& run, const PlannedCase& planned, int64_t valid_keys, const std::string& kernel) {
  Common common = run;
  common.suite = planned.suite;
  common.c = planned.c();
  common.kernel = kernel;
  const double tokens = static_cast<double>(planned.c().tokens());
  common.valid_keys_mean = static_cast<double>(valid_keys) / tokens;
  common.invalid_frac = 1 - *common.valid_keys_mean / planned.c().topk;
  return common;
}

std::vector<AccuracyRow> accuracy_rows(const Common& run, const PlannedCase& planned, const CaseResult& result, const PairResult& pair) {
  AccuracyRow both;
  static_cast<Common&>(both) = common_of(run, planned, result.valid_keys, pair.kernel);
  both.repro = pair.repro;
  const RowFigures& f = pair.evidence.figures;
  const bool judged = f.rows > 0;
  if (judged) {
    both.oracle = is_exact_family(planned.c().values) ? "exact" : "fp64";
    both.oracle_rows = f.rows;
    both.rows_unjudged = f.rows_unjudged;
    both.declared = declared(pair.contract, planned.c().q_dtype);
    both.oracle_ms = pair.oracle_ms;
    both.kernel_ms = pair.base.kernel_ms;
    both.first_launch_ms = pair.base.first_launch_ms;
    if (pair.needle_coverage) both.needle_coverage = pair.needle_coverage->share();
  }
  for (const CheckOutcome& outcome : pair.evidence.checks) {
    if (!outcome.ran) continue;
    const Check& check = checks()[outcome.check];
    if (!both.checks_run.empty()) both.checks_run += '|';
    both.checks_run += check.name;
    Flag& ok = column_of(both, check.column);
    ok = ok.value_or(true) && outcome.out_ok && outcome.lse_ok;
  }

  std::vector<AccuracyRow> rows;
  AccuracyRow out = both;
  out.tensor = Tensor::out;
  out.status = pair.decision.out;
  out.detail = pair.decision.out_detail;
  if (judged) {
    fill(out, f.out);
    out.ulp_err_max = f.out.ulp_err_max;
    out.cos_diff_worst_row = f.out.cos_diff_worst_row;
    out.z_max = f.out.z_max;
    out.z_row_rms_max = f.z_row_rms_max;
    if (f.pooled.rows > 0) out.z_rms_pooled = f.pooled_rms();
    out.z_row_rms_reference = f.z_row_rms_reference;
    out.tightest_atol = f.out.tightest_atol;
    out.tightest_rtol = f.out.tightest_rtol;
  }
  rows.push_back(out);
  if (!pair.evidence.has_lse) return rows;
  AccuracyRow lse = both;
  lse.tensor = Tensor::lse;
  lse.status = pair.decision.lse;
  lse.detail = pair.decision.lse_detail;
  if (judged) {
    fill(lse, f.lse);
    lse.lse_err_max = f.lse_err_max;
  }
  rows.push_back(lse);
  return rows;
}

}  // namespace smla
