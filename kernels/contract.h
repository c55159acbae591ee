// SPDX-License-Identifier: Apache-2.0
// The contract on both sides of the door.
#pragma once
#include "cases/contract.h"
#include "kernels/api/smla_kernel.h"

namespace smla {

/// Calls visit(name, field of Contract, field of smla_contract[, the last value that is defined]) for every field, in the door's order.
template <class Visit>
void each_contract_field(const Visit& visit) {
  visit("invalid_index", &Contract::invalid_index, &smla_contract::invalid_index, InvalidIndex::negative);
  visit("padding", &Contract::padding, &smla_contract::padding, Padding::tail_only);
  visit("lse_dtype", &Contract::lse_dtype, &smla_contract::lse_dtype, LseType::none);
  visit("lse_base", &Contract::lse_base, &smla_contract::lse_base, LseBase::two);
  visit("empty_lse", &Contract::empty_lse, &smla_contract::empty_lse, EmptyLse::large_negative);
  visit("sink_in_lse", &Contract::sink_in_lse, &smla_contract::sink_in_lse);
  visit("duplicates", &Contract::duplicates, &smla_contract::duplicates, Duplicates::undefined);
  visit("q_round", &Contract::q, &smla_contract::q_round, Rounding::q);
  visit("k_round", &Contract::k, &smla_contract::k_round, Rounding::q);
  visit("v_round", &Contract::v, &smla_contract::v_round, Rounding::q);
  visit("p_round", &Contract::p, &smla_contract::p_round, Rounding::q);
  visit("p_scale", &Contract::p_scale, &smla_contract::p_scale);
  visit("acc", &Contract::acc, &smla_contract::acc, Acc::fp22);
  visit("row_sum", &Contract::row_sum, &smla_contract::row_sum, RowSum::rounded);
  visit("p_max", &Contract::p_max, &smla_contract::p_max, PMax::any);
  visit("part", &Contract::part, &smla_contract::part, Rounding::q);
  visit("deterministic", &Contract::deterministic, &smla_contract::deterministic);
  visit("batch_invariant", &Contract::batch_invariant, &smla_contract::batch_invariant);
  visit("scale_exact", &Contract::scale_exact, &smla_contract::scale_exact);
}

smla_contract to_c(const Contract& contract);
/// Fields beyond c.struct_size are 0. `kernel` names it in errors. Throws UsageError for a value that the door does not define.
Contract from_c(const smla_contract& c, const char* kernel);

}  // namespace smla
