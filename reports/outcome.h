// SPDX-License-Identifier: Apache-2.0
// How each (case, kernel) ended, from the rows of accuracy.csv. A pair that was run again (--retry) counts by its last rows.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "reports/record.h"

namespace smla {

/// fail mistrusted crash timeout oom invalid, and impossible_fast. `unsupported` and `skipped` are neither red nor green.
bool is_red(Status status);

struct Outcome {
  const AccuracyRow* out = nullptr;  // either may be absent: a kernel without lse has no lse row
  const AccuracyRow* lse = nullptr;
  /// The row that decides: the red one if one is, else any that is not pass, else out.
  const AccuracyRow& worst() const;
  Status status() const { return worst().status; }
  /// Empty, or what its rows cannot both say, or not with these figures, or what is missing: somebody changed them since they were written.
  std::string contradiction() const;
};

/// In the order in which pairs first appear. Pointers into `rows`.
std::vector<Outcome> outcomes(std::span<const AccuracyRow> rows);

/// The last row of each (case, kernel, timing, cache), in the order of first appearance.
std::vector<const ThroughputRow*> latest(std::span<const ThroughputRow> rows);

/// "case_id kernel": what a pair is called in maps.
std::string pair_key_of(const Case& c, const std::string& kernel);
std::string pair_key(const Common& row);

}  // namespace smla
