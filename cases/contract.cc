// SPDX-License-Identifier: Apache-2.0
#include "cases/contract.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>
#include <vector>

namespace smla {
namespace {

Rounding resolved(Rounding rounding, FloatType q_dtype) {
  return rounding != Rounding::q ? rounding : q_dtype == FloatType::bf16 ? Rounding::bf16 : Rounding::fp16;
}

using Words = std::span<const std::string_view>;
constexpr std::string_view kInvalidIndex[] = {"any_outside", "minus_one", "negative"};
constexpr std::string_view kPadding[] = {"anywhere", "tail_only"};
constexpr std::string_view kLseDtype[] = {"f32", "bf16", "none"};
constexpr std::string_view kLseBase[] = {"e", "two"};
constexpr std::string_view kEmptyLse[] = {"neg_inf", "pos_inf", "large_negative"};
constexpr std::string_view kDuplicates[] = {"counted", "undefined"};
constexpr std::string_view kRounding[] = {"exact", "fp32", "fp16", "bf16", "e4m3", "q"};
constexpr std::string_view kAcc[] = {"fp32", "fp22"};
constexpr std::string_view kRowSum[] = {"exact", "rounded"};
constexpr std::string_view kPMax[] = {"one", "any"};
constexpr std::string_view kNoYes[] = {"no", "yes"};

/// One field of the contract and the words it takes.
struct Field {
  std::string_view key;
  Words words;
  int32_t (*get)(const Contract&);
  void (*set)(Contract&, int32_t);
};
#define SMLA_FIELD(KEY, WORDS)                                                                                                                     \
  {                                                                                                                                                \
#KEY, WORDS, [](const Contract& c) { return static_cast<int32_t>(c.KEY); }, [](Contract & c,                                                   \
                                                                                   int32_t value) { c.KEY = static_cast<decltype(c.KEY)>(value); } \
  }
constexpr Field kFields[] = {
    SMLA_FIELD(invalid_index, kInvalidIndex),
    SMLA_FIELD(padding, kPadding),
    SMLA_FIELD(lse_dtype, kLseDtype),
    SMLA_FIELD(lse_base, kLseBase),
    SMLA_FIELD(empty_lse, kEmptyLse),
    SMLA_FIELD(sink_in_lse, kNoYes),
    SMLA_FIELD(duplicates, kDuplicates),
    SMLA_FIELD(q, kRounding),
    SMLA_FIELD(k, kRounding),
    SMLA_FIELD(v, kRounding),
    SMLA_FIELD(p, kRounding),
    SMLA_FIELD(acc, kAcc),
    SMLA_FIELD(row_sum, kRowSum),
    SMLA_FIELD(p_max, kPMax),
    SMLA_FIELD(part, kRounding),
    SMLA_FIELD(deterministic, kNoYes),
    SMLA_FIELD(batch_invariant, kNoYes),
    SMLA_FIELD(scale_exact, kNoYes),
};
#undef SMLA_FIELD
constexpr std::string_view kScaleKey = "p_scale";  // the one field that is a number

void set_word(Contract& contract, std::string_view key, std::string_view value) {
  if (key == kScaleKey) {
    float scale = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), scale);
    if (error != std::errc() || end != value.data() + value.size() || !(scale > 0) || !std::isfinite(scale))
      throw UsageError(fmt::format("contract: p_scale: '{}' is not a positive number", value));
    contract.p_scale = scale;
    return;
  }
  std::vector<std::string_view> keys{kScaleKey};
  for (const Field& field : kFields) {
    keys.push_back(field.key);
    if (field.key != key) continue;
    for (size_t i = 0; i < field.words.size(); ++i)
      if (field.words[i] == value) return field.set(contract, static_cast<int32_t>(i));
    throw_unknown_value(fmt::format("contract: {}", key), value, field.words.data(), field.words.size());
  }
  throw_unknown_value("contract: key", key, keys.data(), keys.size());
}

}  // namespace

Contract parse_contract(std::string_view words, const Contract& base) {
  constexpr std::string_view kBetween = " ,|\t";
  Contract contract = base;
  for (size_t begin = words.find_first_not_of(kBetween); begin != std::string_view::npos;) {
    const size_t end = std::min(words.find_first_of(kBetween, begin), words.size());
    const std::string_view word = words.substr(begin, end - begin);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) throw UsageError(fmt::format("contract: '{}' is not key=value", word));
    set_word(contract, word.substr(0, equals), word.substr(equals + 1));
    begin = words.find_first_not_of(kBetween, end);
  }
  return contract;
}

std::string contract_words(const Contract& contract) {
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) { text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value); };
  const Contract usual;
  for (const Field& field : kFields)
    if (field.get(contract) != field.get(usual)) add(field.key, field.words[static_cast<size_t>(field.get(contract))]);
  if (contract.p_scale != usual.p_scale) add(kScaleKey, fmt::format("{}", contract.p_scale));
  return text;
}

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
