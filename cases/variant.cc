// SPDX-License-Identifier: Apache-2.0
// The words of variants: how a check's change of the inputs is named on a line.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cases/inputs.h"

namespace smla {
namespace {

struct Flag {
  std::string_view word;
  bool Variant::*field;
};
constexpr Flag kFlags[] = {{"permuted", &Variant::permute_indices},     {"inserted", &Variant::insert_invalid}, {"remapped", &Variant::remap_pages},
                           {"batch_reversed", &Variant::permute_batch}, {"strided", &Variant::pad_strides},     {"second", &Variant::second}};
struct Count {
  std::string_view prefix;
  int Variant::*field;
};
constexpr Count kCounts[] = {{"scaled_", &Variant::scale_q_log2}, {"half_", &Variant::half}, {"splits_", &Variant::num_splits}};
constexpr std::string_view kPoison[] = {"poison_nan", "poison_huge", "poison_random", "poison_numbers"};
constexpr std::string_view kPerturb[] = {"q", "kv", "indices", "topk_length", "sink", "sm_scale"};
constexpr std::string_view kPerturbPrefix = "perturb_";

void parse_word(Variant& variant, std::string_view word) {
  for (size_t i = 0; i < std::size(kPoison); ++i)
    if (word == kPoison[i]) return void(variant.poison = static_cast<Poison>(i));
  for (const Flag& flag : kFlags)
    if (word == flag.word) return void(variant.*flag.field = true);
  for (const Count& count : kCounts) {
    if (!word.starts_with(count.prefix)) continue;
    const std::string_view digits = word.substr(count.prefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), variant.*count.field);
    if (error == std::errc() && end == digits.data() + digits.size() && !digits.empty()) return;
    throw UsageError(fmt::format("variant '{}': '{}' is not a number", word, digits));
  }
  if (word.starts_with(kPerturbPrefix)) {
    const std::string_view name = word.substr(kPerturbPrefix.size());
    if (std::find(std::begin(kPerturb), std::end(kPerturb), name) == std::end(kPerturb))
      throw_unknown_value("variant perturb_*", name, kPerturb, std::size(kPerturb));
    return void(variant.perturb = name);
  }
  std::vector<std::string_view> known(std::begin(kPoison), std::end(kPoison));
  for (const Flag& flag : kFlags) known.push_back(flag.word);
  for (const Count& count : kCounts) known.push_back(count.prefix);
  known.push_back(kPerturbPrefix);
  throw_unknown_value("variant", word, known.data(), known.size());
}

}  // namespace

std::string to_word(const Variant& variant) {
  const Variant base;
  std::vector<std::string> words;
  if (variant.poison != base.poison) words.emplace_back(kPoison[static_cast<size_t>(variant.poison)]);
  for (const Flag& flag : kFlags)
    if (variant.*flag.field) words.emplace_back(flag.word);
  for (const Count& count : kCounts)
    if (variant.*count.field != base.*count.field) words.push_back(fmt::format("{}{}", count.prefix, variant.*count.field));
  if (!variant.perturb.empty()) words.push_back(fmt::format("{}{}", kPerturbPrefix, variant.perturb));
  return words.empty() ? "base" : fmt::format("{}", fmt::join(words, "+"));
}

Variant parse_variant(std::string_view word) {
  Variant variant;
  if (word == "base") return variant;
  for (size_t begin = 0; begin <= word.size();) {
    const size_t end = std::min(word.find('+', begin), word.size());
    parse_word(variant, word.substr(begin, end - begin));
    begin = end + 1;
  }
  return variant;
}

std::vector<std::string> perturbations(const Case& c) {
  std::vector<std::string> names{"kv", "indices"};
  const bool q_matters = c.values != Values::exact_mean;  // there q = 0
  if (q_matters) names.emplace_back("q");
  if (c.topk_length) names.emplace_back("topk_length");
  if (c.sink != SinkKind::none) names.emplace_back("sink");
  if (q_matters) names.emplace_back("sm_scale");
  return names;
}

}  // namespace smla
