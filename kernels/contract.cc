// SPDX-License-Identifier: Apache-2.0
#include "kernels/contract.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace smla {
namespace {

template <class E>
E checked(int32_t value, E last, const char* kernel, const char* field) {
  if (value < 0 || value > static_cast<int32_t>(last))
    throw UsageError("kernel '" + std::string(kernel) + "': contract." + field + " = " + std::to_string(value) + " is not defined (0 to " +
                     std::to_string(static_cast<int32_t>(last)) + ")");
  return static_cast<E>(value);
}

}  // namespace

smla_contract to_c(const Contract& k) {
  smla_contract c = {};
  c.struct_size = sizeof c;
  c.invalid_index = static_cast<int32_t>(k.invalid_index);
  c.padding = static_cast<int32_t>(k.padding);
  c.lse_dtype = static_cast<int32_t>(k.lse_dtype);
  c.lse_base = static_cast<int32_t>(k.lse_base);
  c.empty_lse = static_cast<int32_t>(k.empty_lse);
  c.sink_in_lse = k.sink_in_lse;
  c.duplicates = static_cast<int32_t>(k.duplicates);
  c.q_round = static_cast<int32_t>(k.q);
  c.k_round = static_cast<int32_t>(k.k);
  c.v_round = static_cast<int32_t>(k.v);
  c.p_round = static_cast<int32_t>(k.p);
  c.p_scale = k.p_scale;
  c.acc = static_cast<int32_t>(k.acc);
  c.row_sum = static_cast<int32_t>(k.row_sum);
  c.p_max = static_cast<int32_t>(k.p_max);
  c.part = static_cast<int32_t>(k.part);
  c.deterministic = k.deterministic;
  c.batch_invariant = k.batch_invariant;
  c.scale_exact = k.scale_exact;
  return c;
}

Contract from_c(const smla_contract& given, const char* kernel) {
  smla_contract c = {};
  std::memcpy(&c, &given, std::min<size_t>(given.struct_size, sizeof c));
  Contract k;
  k.invalid_index = checked(c.invalid_index, InvalidIndex::negative, kernel, "invalid_index");
  k.padding = checked(c.padding, Padding::tail_only, kernel, "padding");
  k.lse_dtype = checked(c.lse_dtype, LseType::none, kernel, "lse_dtype");
  k.lse_base = checked(c.lse_base, LseBase::two, kernel, "lse_base");
  k.empty_lse = checked(c.empty_lse, EmptyLse::large_negative, kernel, "empty_lse");
  k.sink_in_lse = c.sink_in_lse != 0;
  k.duplicates = checked(c.duplicates, Duplicates::undefined, kernel, "duplicates");
  k.q = checked(c.q_round, Rounding::q, kernel, "q_round");
  k.k = checked(c.k_round, Rounding::q, kernel, "k_round");
  k.v = checked(c.v_round, Rounding::q, kernel, "v_round");
  k.p = c.p_round == SMLA_TYPE_EXACT ? Rounding::q : checked(c.p_round, Rounding::q, kernel, "p_round");
  if (!(c.p_scale >= 0)) throw UsageError("kernel '" + std::string(kernel) + "': contract.p_scale must be positive, or 0 for 1");
  k.p_scale = c.p_scale == 0 ? 1 : c.p_scale;
  k.acc = checked(c.acc, Acc::fp22, kernel, "acc");
  k.row_sum = checked(c.row_sum, RowSum::rounded, kernel, "row_sum");
  k.p_max = checked(c.p_max, PMax::any, kernel, "p_max");
  k.part = c.part == SMLA_TYPE_EXACT ? Rounding::fp32 : checked(c.part, Rounding::q, kernel, "part");
  k.deterministic = c.deterministic != 0;
  k.batch_invariant = c.batch_invariant != 0;
  k.scale_exact = c.scale_exact != 0;
  return k;
}

}  // namespace smla
