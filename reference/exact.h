// SPDX-License-Identifier: Apache-2.0
// The families that have an exact answer: needle, tracer, exact_mean. No oracle is needed for the first two, so their cases can be huge.
#pragma once
#include <span>
#include <string>

#include "cases/contract.h"
#include "reference/budget.h"

namespace smla {

bool is_exact_family(Values values);
/// True for the families that oracle() is not asked for.
bool needs_no_oracle(Values values);

/// Judges one row by its family's rule (README, "values"). `block` may be null where needs_no_oracle(). `diagnosis`, if given, gets one line for a wrong row:
/// for needle and tracer the slot whose bits came out, and what that slot is to the row (other request, position +1, before the pool, past topk_length, ...).
RowStats judge_exact_row(const OracleBlock* block, int64_t row, const Inputs& in, int64_t t, int32_t h, const Contract& contract, bool split,
                         std::span<const float> out, double lse, const Limits& limits = {}, std::string* diagnosis = nullptr);

}  // namespace smla
