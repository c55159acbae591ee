// SPDX-License-Identifier: Apache-2.0
// Metamorphic relations: two answers that should be the same, judged by the budgets of both and not by the oracle's answer.
#pragma once
#include <span>
#include <vector>

#include "reference/budget.h"

namespace smla {

/// A row's answer in fp64 with the budget of its errors. lse: BASE E, sink in or out as the contract says. Not for empty rows nor for a sink of +inf.
struct Answer {
  std::vector<double> out;  // [d_v]
  double lse = 0;
  RowBudget budget;  // lse.expected is not read
};
/// A candidate's row; lse as stored.
Answer answer(std::span<const float> out, double lse, const Contract& contract, RowBudget budget);

/// The answer for two disjoint sets of keys, merged by their lse, and its budget. sink: of the head, -inf = none.
Answer merge(const Answer& a, const Answer& b, double sink, bool sink_in_lse);

struct Relation {
  double z_max = 0;  // largest |a - b| / sqrt(sigma_a^2 + sigma_b^2): for equal budgets 6 is sqrt(2) * 6 sigma. inf where either is NaN
  int32_t z_argmax = 0;
  double lse_ratio = 0;  // |a.lse - b.lse| / its limit
  bool ok(const Limits& limits = {}) const { return z_max <= limits.z_max && lse_ratio <= limits.lse_ratio; }
};
Relation relate(const Answer& a, const Answer& b);

}  // namespace smla
