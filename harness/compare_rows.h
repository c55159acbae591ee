// SPDX-License-Identifier: Apache-2.0
// The comparator: outputs, the oracle's blocks and a contract in; the figures of accuracy.csv out. Nothing is decided here (verdict.h decides).
// Every figure is a maximum over elements or rows, or pooled over rows that qualify: none is diluted by healthy rows.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "cases/contract.h"
#include "cases/inputs.h"
#include "reference/budget.h"
#include "reference/oracle.h"

namespace smla {

/// out and lse of some tokens, as a kernel left them: out [tokens][h_q][d_v] in q's type, lse [tokens][h_q] widened, in the kernel's own convention
/// (empty for lse_dtype = none).
struct CandidateRows {
  std::span<const uint16_t> out;
  std::span<const float> lse;
};

/// The figures of one tensor over the judged rows. Of `lse`, an element is a row, and the z and cosine figures stay 0.
struct TensorFigures {
  int64_t n_elem = 0, n_bad = 0, n_bad_rows = 0, n_nonfinite_mismatch = 0;
  // Errors: inf where an element is finite on one side only.
  double abs_err_max = 0, rel_err_max = 0, ulp_err_max = 0;  // relative to |ref| where that is a normal number
  double cos_diff_worst_row = 0;                             // 1 - cosine, of the worst row with a non-zero reference
  double z_max = 0;
  double tightest_atol = 0, tightest_rtol = 0;  // rtol = one ulp of the output's type; atol = the least that then passes
  std::vector<int64_t> worst_index;             // b, s_q, h_q (, d) of the worst element: non-finite first, then the largest z (lse: err / limit)
  double worst_got = std::numeric_limits<double>::quiet_NaN(), worst_ref = worst_got;  // lse: in base e
};

struct RowFigures {
  TensorFigures out, lse;
  double z_row_rms_max = 0, z_row_rms_reference = 0;  // the second: against the reference declaration, whatever was declared
  double row_rms_share_max = 0;                       // largest rms / its row's limit
  PooledRms pooled;                                   // over the rows that qualify
  double lse_err_max = 0, lse_ratio_max = 0;          // absolute, base e; over its limit
  int64_t rows = 0, rows_unjudged = 0;
  double pooled_rms() const { return out.n_nonfinite_mismatch > 0 ? std::numeric_limits<double>::infinity() : pooled.value(); }
  std::string diagnosis;  // needle and tracer: where the first wrong row's bits came from
};

/// A row as the comparator saw it. `lse` as stored.
struct ComparedRow {
  const Inputs& in;
  int64_t t;
  int32_t h;
  std::span<const float> out;
  double lse;
  std::span<const double> expected;  // out
};
/// Sees every row that was judged, one at a time, and may change what was made of it. For the self-test, which plants defects of the comparator's own
/// here.
using RowHook = std::function<void(const ComparedRow& row, RowStats& stats)>;

/// Precision fields of the reference declaration, everything else (lse convention, padding ...) as declared.
Contract with_reference_precision(const Contract& contract);

class RowComparer {
 public:
  /// `judged_by`: the contract whose precision sizes the budget. `split`: partials of a declared type count.
  RowComparer(const Inputs& in, const Contract& judged_by, bool split, RowHook hook = nullptr, const Limits& limits = {});
  /// `block` holds the oracle's answer for `tokens`, or is null for families that need none. The figures do not depend on `threads`.
  void add(const OracleBlock* block, std::span<const int64_t> tokens, const CandidateRows& rows, int threads = 1);
  const RowFigures& figures() const { return seen_.figures; }

 private:
  /// Of some rows in order.
  struct Seen {
    RowFigures figures;
    double worst_out_rank = -1, worst_lse_rank = -1;
    void add(const Seen& later);
  };
  void add_row(Seen& seen, const OracleBlock* block, int64_t row, int64_t t, int32_t h, std::span<const uint16_t> bits, double lse) const;
  /// `place`: b, s_q, h_q.
  void add_out(Seen& seen, const RowStats& stats, const std::vector<int64_t>& place, std::span<const float> got_values,
               std::span<const double> ref_values) const;
  void add_lse(Seen& seen, const RowStats& stats, const std::vector<int64_t>& place, double lse) const;

  const Inputs& in_;
  Contract contract_, reference_;
  bool split_, has_lse_;
  RowHook hook_;
  Limits limits_;
  Seen seen_;
};

}  // namespace smla
