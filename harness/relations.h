// SPDX-License-Identifier: Apache-2.0
// Answers that should be the same, held against each other by the budgets of both: evidence that does not rest on the oracle's answer.
#pragma once
#include <optional>
#include <string>

#include "harness/compare_rows.h"
#include "reference/relation.h"

namespace smla {

/// Rows of one run, and what sizes their budget.
struct RelatedRows {
  const OracleBlock* block;
  const Inputs& in;
  const Contract& contract;
  bool split;
  CandidateRows rows;
  /// Row `row` of the block as an answer; nothing where budgets do not say much: an empty row, a sink of +inf, scores beyond the linearisation.
  std::optional<Answer> at(int64_t row) const;
};

/// Gathers row after row; numbers and one line, no verdict on the kernel.
class RelationWatch {
 public:
  void add(const RelatedRows& a, const RelatedRows& b);
  /// The two halves of every list, merged by their lse, against the whole.
  void add_halves(const RelatedRows& first, const RelatedRows& second, const RelatedRows& whole);
  bool out_ok() const { return bad_out_ == 0; }
  bool lse_ok() const { return bad_lse_ == 0; }
  std::string fault() const;

 private:
  void add(const Answer& a, const Answer& b, const RelatedRows& whole, int64_t row);
  int64_t rows_ = 0, bad_out_ = 0, bad_lse_ = 0;
  double z_max_ = 0, lse_ratio_max_ = 0;
  std::string worst_;
};

}  // namespace smla
