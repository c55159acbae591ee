// SPDX-License-Identifier: Apache-2.0
// Why rows are wrong: what a kernel may have done instead is tried on some of them, and named where it gives the kernel's own answer.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "harness/compare_rows.h"

namespace smla {

/// Of out and of lse: a clause such as "as if the last valid entry were left out", which is true of every wrong row that was tried; else what those
/// rows have in common, such as "only channels 504 to 511 are wrong"; else empty.
struct Causes {
  std::string out, lse;
};

/// The same tokens, answered where memory that no row selects holds numbers (Poison::numbers). What a kernel reads there shows in its answer, and
/// not only as NaN.
struct Refilled {
  const Inputs& in;
  CandidateRows rows;
};

/// Tries a few of the wrong rows among these. `block` as for RowComparer::add. `refilled`: looked at where a row should be finite, and is not.
Causes find_causes(const Inputs& in, const Contract& judged_by, bool split, const OracleBlock* block, std::span<const int64_t> tokens,
                   const CandidateRows& rows, const Refilled* refilled = nullptr);

}  // namespace smla
