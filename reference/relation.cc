// SPDX-License-Identifier: Apache-2.0
#include "reference/relation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace smla {

Answer answer(std::span<const float> out, double lse, const Contract& contract, RowBudget budget) {
  return {{out.begin(), out.end()}, contract.lse_base == LseBase::two ? lse * std::numbers::ln2 : lse, std::move(budget)};
}

Answer merge(const Answer& a, const Answer& b, double sink, bool sink_in_lse) {
  // Z_i = exp(lse_i) + exp(sink) divides the weights of half i, Z those of the whole:
  // out = sum_i Z_i / Z out_i,  d lse / d lse_i = exp(lse_i - lse). An error x of lse_i adds exp(lse_i) (e^x - 1) to Z_i and Z, so it moves out by
  // exp(lse_i) (e^x - 1) / (Z + exp(lse_i) (e^x - 1)) (out_i - out): no line where the lse is rounded to more than 1 (bf16, large logits).
  const double scale = std::max({a.lse, b.lse, sink}), exp_sink = std::exp(sink - scale);
  const double exp_lse[] = {std::exp(a.lse - scale), std::exp(b.lse - scale)};
  const double sum_exp_lse = exp_lse[0] + exp_lse[1] - (sink_in_lse ? exp_sink : 0), beside = sink_in_lse ? 0 : exp_sink;
  const double Z_half[] = {exp_lse[0] + beside, exp_lse[1] + beside}, Z = sum_exp_lse + beside;
  const Answer* half[] = {&a, &b};

  Answer whole;
  whole.lse = scale + std::log(sum_exp_lse);
  double random2 = 0, moved[2];  // moved: share of out_i - out by which six deviations of lse_i move out
  for (int i = 0; i < 2; ++i) {
    const LseBudget& lse = half[i]->budget.lse;
    const double share = exp_lse[i] / sum_exp_lse;
    random2 += share * share * lse.random * lse.random;
    whole.budget.lse.fixed += share * lse.fixed;
    const double six_sigma = lse.random + 6 * lse.fixed / std::numbers::sqrt3;
    const auto move = [&](double x) {
      const double more = x < 1 ? exp_lse[i] * std::expm1(x) : std::exp(half[i]->lse - scale + x) - exp_lse[i];
      return std::fabs(more / (Z + more));  // NaN: beyond all bounds
    };
    moved[i] = std::max(move(six_sigma), move(-six_sigma));  // in this order NaN stays
  }
  whole.budget.lse.random = std::sqrt(random2);
  for (size_t d = 0; d < a.out.size(); ++d) {
    const double out = (Z_half[0] * a.out[d] + Z_half[1] * b.out[d]) / Z;
    const double farthest = std::max({std::fabs(a.out[d] - out), std::fabs(b.out[d] - out), beside > 0 ? std::fabs(out) : 0.0});
    double variance = 0;
    for (int i = 0; i < 2; ++i) {
      const double by_lse = moved[i] * std::fabs(half[i]->out[d] - out);
      variance += std::pow(Z_half[i] / Z * half[i]->budget.sigma[d], 2) + std::pow((by_lse < farthest ? by_lse : farthest) / 6, 2);
    }
    whole.out.push_back(out);
    whole.budget.sigma.push_back(std::sqrt(variance));
  }
  return whole;
}

Relation relate(const Answer& a, const Answer& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto ratio = [](double x, double y, double limit) {
    const double each = x == y ? 0 : std::fabs(x - y) / limit;
    return std::isnan(each) ? kInfinity : each;
  };
  Relation relation;
  for (size_t d = 0; d < a.out.size(); ++d) {
    const double z = ratio(a.out[d], b.out[d], std::hypot(a.budget.sigma[d], b.budget.sigma[d]));
    if (z > relation.z_max) relation.z_max = z, relation.z_argmax = static_cast<int32_t>(d);
  }
  const LseBudget &la = a.budget.lse, &lb = b.budget.lse;
  relation.lse_ratio = ratio(a.lse, b.lse, std::hypot(la.random, lb.random) + la.fixed + lb.fixed);
  return relation;
}

}  // namespace smla
