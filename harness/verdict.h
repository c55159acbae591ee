// SPDX-License-Identifier: Apache-2.0
// The one place of policy: what was measured and what happened -> the status of a (case, kernel), with the reason in one line.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cases/words.h"
#include "harness/cause.h"
#include "harness/checks.h"
#include "harness/compare_rows.h"

namespace smla {

/// What came of one check.
struct CheckOutcome {
  size_t check = 0;  // index into checks()
  bool ran = false;  // false: it does not apply to this case and contract
  bool out_ok = true, lse_ok = true;
  std::string detail;  // the first thing that went wrong; empty: as many rows as without it, so nothing new
};

/// All that a verdict rests on.
struct Evidence {
  Status ended = Status::pass;  // pass = every run came back; else how the first bad one ended, and where
  std::string ended_detail;
  RowFigures figures;
  Causes causes;  // of its wrong rows
  std::vector<CheckOutcome> checks;
  std::string mistrusted;  // not empty: an impostor that the family promises to reject was not; which
  std::string too_loose;   // not empty: the same, but only by what this kernel declares: by the reference declaration it was
  bool has_lse = true;
};

struct Decision {
  Status out = Status::pass, lse = Status::pass;
  std::string out_detail, lse_detail;
  /// The pair's: the worse of the two.
  Status status() const { return out == Status::pass ? lse : out; }
  const std::string& detail() const { return out == Status::pass ? lse_detail : out_detail; }
};
Decision decide(const Evidence& evidence, const Limits& limits = {});
/// "out of 3 and lse of 2 of 64 rows wrong".
std::string wrong_rows(const RowFigures& figures);

/// Whether an outcome is red where `expect` (cases/suite.h) was expected of it; `why` says what was expected instead.
bool is_red(Status status, const std::string& kernel, const std::string& expect, std::string* why = nullptr);

}  // namespace smla
