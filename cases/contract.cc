// SPDX-License-Identifier: Apache-2.0
#include "cases/contract.h"

#include <fmt/format.h>

#include <vector>

namespace smla {
namespace {

Rounding resolved(Rounding rounding, FloatType q_dtype) {
  return rounding != Rounding::q ? rounding : q_dtype == FloatType::bf16 ? Rounding::bf16 : Rounding::fp16;
}

}  // namespace

std::string declared(const Contract& contract, FloatType q_dtype) {
  std::vector<std::string> words;
  const auto rounding = [&](std::string_view key, Rounding value, Rounding usual) {
    static constexpr std::string_view kNames[] = {"exact", "fp32", "fp16", "bf16", "e4m3"};
    const Rounding type = resolved(value, q_dtype);
    if (type != usual) words.push_back(fmt::format("{}={}", key, kNames[static_cast<size_t>(type)]));
  };
  const auto word = [&](bool differs, std::string_view text) {
    if (differs) words.emplace_back(text);
  };
  rounding("q", contract.q, Rounding::exact);
  rounding("k", contract.k, Rounding::exact);
  rounding("v", contract.v, Rounding::exact);
  rounding("p", contract.p, Rounding::exact);
  if (contract.p_scale != 1) words.push_back(fmt::format("p_scale={}", contract.p_scale));
  word(contract.acc == Acc::fp22, "acc=fp22");
  word(contract.row_sum == RowSum::rounded, "row_sum=rounded");
  word(contract.p_max == PMax::any, "p_max=any");
  if (contract.part != Rounding::exact) rounding("part", contract.part, Rounding::fp32);
  word(contract.lse_dtype == LseType::bf16, "lse_dtype=bf16");
  word(contract.lse_dtype == LseType::none, "lse_dtype=none");
  word(contract.lse_base == LseBase::two, "lse_base=2");
  word(contract.empty_lse == EmptyLse::pos_inf, "empty_lse=inf");
  word(contract.empty_lse == EmptyLse::large_negative, "empty_lse=large_negative");
  word(contract.sink_in_lse, "sink_in_lse=true");
  word(contract.invalid_index == InvalidIndex::minus_one, "invalid_index=minus_one");
  word(contract.invalid_index == InvalidIndex::negative, "invalid_index=negative");
  word(contract.padding == Padding::tail_only, "padding=tail_only");
  word(contract.duplicates == Duplicates::undefined, "duplicates=undefined");
  return fmt::format("{}", fmt::join(words, "|"));
}

double unit_roundoff(Rounding rounding, FloatType q_dtype) {
  switch (resolved(rounding, q_dtype)) {
    case Rounding::exact:
      return 0;
    case Rounding::fp32:
      return 0x1p-24;
    case Rounding::fp16:
      return 0x1p-11;
    case Rounding::bf16:
      return 0x1p-8;
    case Rounding::e4m3:
      return 0x1p-4;
    case Rounding::q:
      break;
  }
  throw UsageError("unit_roundoff: unknown rounding");
}

}  // namespace smla
