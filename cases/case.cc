// SPDX-License-Identifier: Apache-2.0
#include "cases/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

namespace smla {
namespace {

/// Reads the whole word as a number of type T.
template <class T>
T parse_number(std::string_view key, std::string_view word) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc::result_out_of_range) throw UsageError(fmt::format("{}: '{}' is out of range", key, word));
  if (error != std::errc() || end != word.data() + word.size())
    throw UsageError(fmt::format("{}: '{}' is not a number of the kind it takes", key, word));
  return value;
}

/// One key of the case line: how it is read and written.
struct Key {
  std::string_view name;
  void (*set)(Case&, std::string_view word);
  std::string (*get)(const Case&);
};

template <class T>
void set_field(T& field, std::string_view key, std::string_view word) {
  if constexpr (std::is_enum_v<T>) field = parse_enum<T>(key, word);
  else if constexpr (std::is_same_v<T, bool>) {
    if (word != "0" && word != "1") throw UsageError(fmt::format("{}: '{}' is neither 0 nor 1", key, word));
    field = word == "1";
  } else field = parse_number<T>(key, word);
}

template <class T>
std::string field_text(T field) {
  if constexpr (std::is_enum_v<T>) return std::string(name_of(field));
  else if constexpr (std::is_same_v<T, bool>) return field ? "1" : "0";
  else return fmt::format("{}", field);  // a float in the shortest form that reads back to itself
}

constexpr std::string_view kFilePattern = "file:";

void set_pattern(Case& c, std::string_view word) {
  const bool of_file = word.starts_with(kFilePattern);
  c.pattern_file = of_file ? word.substr(kFilePattern.size()) : std::string_view();
  c.pattern = of_file ? Pattern::file : parse_enum<Pattern>("pattern", word);
}
std::string pattern_text(const Case& c) {
  return c.pattern == Pattern::file ? std::string(kFilePattern) + c.pattern_file : std::string(name_of(c.pattern));
}

#define SMLA_KEY(NAME)                                                                                                               \
  {                                                                                                                                  \
#NAME, [](Case & c, std::string_view word) { set_field(c.NAME, #NAME, word); }, [](const Case& c) { return field_text(c.NAME); } \
  }
constexpr Key kKeys[] = {
    SMLA_KEY(b),
    SMLA_KEY(s_q),
    SMLA_KEY(h_q),
    SMLA_KEY(s_kv),
    SMLA_KEY(topk),
    SMLA_KEY(d_qk),
    SMLA_KEY(d_v),
    SMLA_KEY(q_dtype),
    SMLA_KEY(kv_format),
    SMLA_KEY(scales),
    SMLA_KEY(rope_dtype),
    SMLA_KEY(page_size),
    SMLA_KEY(page_stride_rows),
    SMLA_KEY(table),
    SMLA_KEY(lens),
    SMLA_KEY(topk_length),
    SMLA_KEY(sink),
    SMLA_KEY(sm_scale),
    SMLA_KEY(num_splits),
    {"pattern", set_pattern, pattern_text},
    SMLA_KEY(values),
    SMLA_KEY(needle0),
    SMLA_KEY(seed),
};
#undef SMLA_KEY
constexpr size_t kAlwaysPrinted = 5;  // b s_q h_q s_kv topk

/// The keys that are no field of a case: shorthand that expands.
constexpr std::string_view kModelKeys[] = {"model", "tp"};

struct Model {
  std::string_view name;
  int32_t h_q, qk_nope, qk_rope, kv_lora_rank;
};
constexpr Model kModels[] = {
    // sources: the models' config.json; sm_scale is that of the un-absorbed head, (qk_nope + qk_rope)^-0.5
    {"deepseek-v3.2", 128, 128, 64, 512},
    {"glm-5", 64, 192, 64, 512},
};

const Key& find_key(std::string_view name) {
  for (const Key& key : kKeys)
    if (key.name == name) return key;
  std::vector<std::string_view> known(std::begin(kModelKeys), std::end(kModelKeys));
  for (const Key& key : kKeys) known.push_back(key.name);
  const std::string near = nearest(name, known.data(), known.size());
  throw UsageError(near.empty() ? fmt::format("unknown key '{}'; known: {}", name, fmt::join(known, " "))
                                : fmt::format("unknown key '{}'; did you mean '{}'?", name, near));
}

void apply_model(Case& c, std::string_view name, int32_t tp) {
  std::vector<std::string_view> names;
  for (const Model& model : kModels) {
    names.push_back(model.name);
    if (model.name != name) continue;
    if (tp < 1 || model.h_q % tp != 0) throw UsageError(fmt::format("tp: {} does not divide the {} heads of {}", tp, model.h_q, name));
    c.h_q = model.h_q / tp;
    c.d_qk = model.kv_lora_rank + model.qk_rope;
    c.d_v = model.kv_lora_rank;
    c.sm_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(model.qk_nope + model.qk_rope)));
    return;
  }
  throw_unknown_value("model", name, names.data(), names.size());
}
constexpr std::string_view kGivenByModel[] = {"h_q", "d_qk", "d_v", "sm_scale"};

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr std::string_view kSpace = " \t\r\n";
  for (size_t begin = line.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpace, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kSpace, end);
  }
  return words;
}

/// What a key is when the line does not name it, given the keys that it follows.
Case default_of(const Case& c) {
  Case d;
  d.pass_kind = c.pass_kind;
  d.rope_dtype = c.q_dtype;
  d.page_stride_rows = c.page_size;
  return d;
}

std::string spelled(const Case& c, bool full) {
  const Case d = default_of(c);
  std::string line(name_of(c.pass_kind));
  for (size_t i = 0; i < std::size(kKeys); ++i) {
    const std::string value = kKeys[i].get(c);
    if (full || i < kAlwaysPrinted || value != kKeys[i].get(d)) line += fmt::format(" {}={}", kKeys[i].name, value);
  }
  return line;
}

}  // namespace

Case parse_line(std::string_view line) {
  const std::vector<std::string_view> words = words_of(line);
  if (words.empty()) throw UsageError("empty case: it starts with 'decode' or 'prefill'");
  Case c;
  c.pass_kind = parse_enum<PassKind>("pass_kind", words[0]);

  std::vector<std::string_view> seen;
  const auto given = [&](std::string_view key) { return std::find(seen.begin(), seen.end(), key) != seen.end(); };
  std::string_view model;
  int32_t tp = 1;
  for (const std::string_view word : std::span(words).subspan(1)) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) throw UsageError(fmt::format("'{}' is not key=value", word));
    const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
    if (given(key)) throw UsageError(fmt::format("{}: given twice", key));
    seen.push_back(key);
    if (key == "model") model = value;
    else if (key == "tp") tp = parse_number<int32_t>(key, value);
    else find_key(key).set(c, value);
  }
  if (model.empty() && (given("tp") || given("model"))) throw UsageError("tp: only together with model=");
  if (!model.empty()) {
    for (const std::string_view key : kGivenByModel)
      if (given(key)) throw UsageError(fmt::format("{}: model={} already gives it", key, model));
    apply_model(c, model, tp);
  }
  if (!given("rope_dtype")) c.rope_dtype = c.q_dtype;
  if (!given("page_stride_rows")) c.page_stride_rows = c.page_size;
  validate(c);
  return c;
}

std::string to_line(const Case& c) { return spelled(c, false); }
std::string to_full_line(const Case& c) { return spelled(c, true); }

std::string case_id(const Case& c) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits
  for (const char byte : "case_format=1 " + to_full_line(c)) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  return fmt::format("c{:016x}", hash);
}

const std::vector<std::string>& case_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> names{"pass_kind"};
    for (const Key& key : kKeys) names.emplace_back(key.name);
    return names;
  }();
  return keys;
}

std::string case_value(const Case& c, std::string_view key) { return key == "pass_kind" ? std::string(name_of(c.pass_kind)) : find_key(key).get(c); }

}  // namespace smla
