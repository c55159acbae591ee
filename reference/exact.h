// SPDX-License-Identifier: Apache-2.0
// The families that have an exact answer: needle, tracer, exact_mean. No oracle is needed for the first two, so their cases can be huge.
#pragma once
#include <span>
#include <string>

#include "cases/contract.h"
#include "reference/budget.h"

namespace smla {

bool is_exact_family(Values values);
/// True for the families that oracle() need not be asked for.
bool needs_no_oracle(Values values);

/// Judges row (t, h) by its family's rule (reference/README.md, "families"). `block` and `row` (the row's number there) are read by exact_mean only;
/// block may be null where needs_no_oracle(). `diagnosis`, if given, gets one line for a wrong row of needle or tracer: the slot whose bits came out,
/// and what it is to the row.
RowStats judge_exact_row(const OracleBlock* block, int64_t row, const Inputs& in, int64_t t, int32_t h, const Contract& contract, bool split,
                         std::span<const float> out, double lse, const Limits& limits = {}, std::string* diagnosis = nullptr);

/// Judges row (t, h) by the rule that its family has: judge_exact_row(), or judge_row(), which needs the block.
RowStats judge_row_of_family(const OracleBlock* block, int64_t row, const Inputs& in, int64_t t, int32_t h, const Contract& contract, bool split,
                             std::span<const float> out, double lse, const Limits& limits = {}, std::string* diagnosis = nullptr);

/// What `slot` is to row t: "entry 17 of the row", "past topk_length", "the neighbour (+1) of entry 17", "position 40 of request 2", "a page that
/// nothing uses" ...
std::string describe_slot(const Inputs& in, int64_t t, int64_t slot);

}  // namespace smla
