// SPDX-License-Identifier: Apache-2.0
// The acceptance rules that other projects publish, on the rows that our own rule judges: what each of them would have noticed. They judge nothing
// here; `smla selftest --rules` tells how they fare. Whole-tensor figures are what those rules ask for.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "harness/compare_rows.h"

namespace smla {

struct PublishedRule {
  const char* name;
  const char* what;  // the rule, and where it is used
};
std::span<const PublishedRule> published_rules();

/// sum_i p_i |v_id| by (t, h) of one case, sink left out. Shape: [d_v]. One of the rules wants it, and it costs the row's products: once for all
/// kernels.
using Magnitudes = std::map<std::pair<int64_t, int32_t>, std::vector<double>>;

/// All of them over one kernel's answer to one case, row after row.
class PublishedRules {
 public:
  /// `magnitudes` of the same case, filled here.
  void add(const ComparedRow& row, const RowStats& stats, Magnitudes& magnitudes);
  /// `rule`: index into published_rules().
  bool accepts(size_t rule) const;

 private:
  int64_t flashmla_bad_ = 0, lse_bad_ = 0, close_5e2_bad_ = 0, close_1e2_bad_ = 0, benchdnn_bad_ = 0, nonfinite_bad_ = 0;
  double dot_ = 0, got2_ = 0, ref2_ = 0, err2_ = 0;
};

}  // namespace smla
