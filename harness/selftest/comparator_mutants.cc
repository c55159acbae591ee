// SPDX-License-Identifier: Apache-2.0
#include "harness/selftest/comparator_mutants.h"

#include <algorithm>
#include <cmath>

namespace smla {
namespace {

void accept_out(RowStats& stats) {
  stats.z_max = stats.sum_z2 = stats.rms = 0;
  stats.n_bad = stats.n_nonfinite_mismatch = 0;
  stats.hull_ok = true;
}
void accept_lse(RowStats& stats) { stats.lse_err = stats.lse_ratio = 0; }
void accept(RowStats& stats) {
  accept_out(stats);
  accept_lse(stats);
}

constexpr ComparatorMutant kMutants[] = {
    {"only_request_0", "requests but the first are skipped",
     [](const ComparedRow& row, RowStats& stats) {
       if (row.t >= row.in.c.s_q) accept(stats);
     },
     "mut_row_b_plus_j"},
    {"only_head_0", "heads but the first are skipped",
     [](const ComparedRow& row, RowStats& stats) {
       if (row.h > 0) accept(stats);
     },
     "mut_last_channels_of_first_head"},
    {"nan_is_equal", "NaN compares equal to everything",
     [](const ComparedRow& row, RowStats& stats) {
       if (std::any_of(row.out.begin(), row.out.end(), [](float x) { return std::isnan(x); })) accept_out(stats);
       if (std::isnan(row.lse)) accept_lse(stats);
     },
     "mut_max_unguarded"},
    {"out_ignored", "out is not looked at", [](const ComparedRow&, RowStats& stats) { accept_out(stats); }, "mut_one_value_wrong"},
    {"lse_ignored", "lse is not looked at", [](const ComparedRow&, RowStats& stats) { accept_lse(stats); }, "mut_lse_in_bf16"},
    {"empty_rows_skipped", "rows without a valid index are skipped",
     [](const ComparedRow&, RowStats& stats) {
       if (stats.empty) accept(stats);
     },
     "mut_empty_lse_zero"},
    {"limits_times_100", "every limit is a hundred times wider",
     [](const ComparedRow&, RowStats& stats) {
       if (!std::isfinite(stats.z_max) || stats.z_max > 600) return;
       stats.z_max /= 100;
       stats.rms /= 100;
       stats.sum_z2 /= 1e4;
       if (stats.judged && !stats.empty && stats.z_max <= 6) stats.n_bad = stats.n_nonfinite_mismatch;
       stats.lse_ratio /= 100;
     },
     "mut_lse_biased"},
};

}  // namespace

std::span<const ComparatorMutant> comparator_mutants() { return kMutants; }

}  // namespace smla
