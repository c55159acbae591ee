// SPDX-License-Identifier: Apache-2.0
#include "kernels/contract.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

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
  each_contract_field([&](const char*, auto here, auto there, auto...) { c.*there = static_cast<std::decay_t<decltype(c.*there)>>(k.*here); });
  return c;
}

Contract from_c(const smla_contract& given, const char* kernel) {
  smla_contract c = {};
  std::memcpy(&c, &given, std::min<size_t>(given.struct_size, sizeof c));
  Contract k;
  each_contract_field([&](const char* name, auto here, auto there, auto... last) {
    if constexpr (sizeof...(last) > 0) k.*here = checked(c.*there, last..., kernel, name);
    else if constexpr (std::is_same_v<decltype(there), float smla_contract::*>) k.*here = c.*there;
    else k.*here = c.*there != 0;
  });
  // All fields 0 is the reference declaration.
  if (c.p_round == SMLA_TYPE_EXACT) k.p = Rounding::q;
  if (c.part == SMLA_TYPE_EXACT) k.part = Rounding::fp32;
  if (!(c.p_scale >= 0 && std::isfinite(c.p_scale)))
    throw UsageError("kernel '" + std::string(kernel) + "': contract.p_scale must be positive and finite, or 0 for 1");
  if (c.p_scale == 0) k.p_scale = 1;
  return k;
}

}  // namespace smla
