// SPDX-License-Identifier: Apache-2.0
#include "harness/relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/figure.h"
#include "reference/decode.h"

namespace smla {
namespace {

double sink_at(const Inputs& in, int64_t row) {
  return in.sink.empty() ? -std::numeric_limits<double>::infinity() : in.sink[static_cast<size_t>(row % in.c.h_q)];
}

}  // namespace

std::optional<Answer> RelatedRows::at(int64_t row) const {
  if (block->n[row] == 0 || sink_at(in, row) == std::numeric_limits<double>::infinity()) return {};
  if (block->scores_for(score_error(contract, in.c)).beyond[row]) return {};
  std::vector<float> out(static_cast<size_t>(in.c.d_v));
  for (size_t d = 0; d < out.size(); ++d) out[d] = static_cast<float>(decode16(rows.out[row * out.size() + d], in.c.q_dtype));
  return answer(out, rows.lse.empty() ? 0.0 : rows.lse[row], contract, row_budget(*block, row, in, contract, split));
}

void RelationWatch::add(const RelatedRows& a, const RelatedRows& b) {
  for (int64_t row = 0; row < a.block->rows(); ++row) {
    const std::optional<Answer> left = a.at(row), right = b.at(row);
    if (left && right) add(*left, *right, a, row);
  }
}

void RelationWatch::add_halves(const RelatedRows& first, const RelatedRows& second, const RelatedRows& whole) {
  if (whole.contract.lse_dtype == LseType::none) return;
  for (int64_t row = 0; row < whole.block->rows(); ++row) {
    const std::optional<Answer> a = first.at(row), b = second.at(row), all = whole.at(row);
    if (a && b && all) add(merge(*a, *b, sink_at(whole.in, row), whole.contract.sink_in_lse), *all, whole, row);
  }
}

void RelationWatch::add(const Answer& a, const Answer& b, const RelatedRows& whole, int64_t row) {
  const Limits limits;
  const Relation relation = relate(a, b);
  ++rows_;
  const bool out_bad = !(relation.z_max <= limits.z_max);
  const bool lse_bad = whole.contract.lse_dtype != LseType::none && !(relation.lse_ratio <= limits.lse_ratio);
  bad_out_ += out_bad;
  bad_lse_ += lse_bad;
  if ((out_bad || lse_bad) && worst_.empty()) {
    const int64_t t = whole.block->tokens[static_cast<size_t>(row / whole.in.c.h_q)];
    worst_ = fmt::format("b={} s_q={} h={} d={}", t / whole.in.c.s_q, t % whole.in.c.s_q, row % whole.in.c.h_q, relation.z_argmax);
  }
  z_max_ = std::max(z_max_, relation.z_max);
  lse_ratio_max_ = std::max(lse_ratio_max_, relation.lse_ratio);
}

std::string RelationWatch::fault() const {
  if (bad_out_ + bad_lse_ == 0) return "";
  return fmt::format("of {} rows {} answer another out and {} another lse (z {}, lse {} of its limit), first at {}", rows_, bad_out_, bad_lse_,
                     figure_beside(z_max_, Limits().z_max), figure_beside(lse_ratio_max_, Limits().lse_ratio), worst_);
}

}  // namespace smla
