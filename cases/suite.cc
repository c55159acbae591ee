// SPDX-License-Identifier: Apache-2.0
#include "cases/suite.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "cases/embedded.h"
#include "cases/input_file.h"

namespace smla {
namespace {

/// A string of the file may hold a line feed, and an error that quotes it is one line all the same.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

/// Where in the text something stands, for errors.
struct Place {
  const std::string& origin;
  int64_t line;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw UsageError(fmt::format("{}:{}: {}", origin, line, one_line(fmt::format(text, std::forward<Args>(args)...))));
  }
};

Place place_of(const std::string& origin, const toml::node& node) { return {origin, static_cast<int64_t>(node.source().begin.line)}; }

/// Suites are ASCII: toml++ 3.3 runs into undefined behaviour over some other characters where it does not expect them.
void check_characters(std::string_view text, const std::string& origin) {
  int64_t line = 1;
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= 0x80) Place{origin, line}.fail("a character beyond ASCII");
    line += byte == '\n';
  }
}

std::string text_of(const toml::node& node, const Place& at, std::string_view key) {
  if (const auto* text = node.as_string()) return text->get();
  at.fail("{}: is not a string", key);
}

const toml::array& array_of(const toml::node& node, const Place& at, std::string_view key) {
  if (const auto* array = node.as_array()) return *array;
  at.fail("{}: is not an array", key);
}

std::vector<std::string> texts_of(const toml::node& node, const std::string& origin, std::string_view key) {
  std::vector<std::string> texts;
  for (const toml::node& item : array_of(node, place_of(origin, node), key)) texts.push_back(text_of(item, place_of(origin, item), key));
  return texts;
}

/// A value of an axis as it stands on a case line.
std::string axis_value(const toml::node& node, const Place& at, std::string_view axis) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  at.fail("axes.{}: values are strings and numbers", axis);
}

/// key=value words of a line, by key. The pass kind is left out.
std::map<std::string, std::string> pairs_of(std::string_view line) {
  std::map<std::string, std::string> pairs;
  std::istringstream words{std::string(line)};
  for (std::string word; words >> word;)
    if (const size_t equals = word.find('='); equals != std::string::npos) pairs[word.substr(0, equals)] = word.substr(equals + 1);
  return pairs;
}

struct Axis {
  std::string key;
  std::vector<std::string> values;
};

std::vector<Axis> axes_of(const toml::node& node, const std::string& origin) {
  const auto* table = node.as_table();
  if (table == nullptr) place_of(origin, node).fail("axes: is not a table");
  std::vector<Axis> axes;
  for (const auto& [key, values] : *table) {
    Axis axis{std::string(key.str()), {}};
    for (const toml::node& value : array_of(values, place_of(origin, values), axis.key))
      axis.values.push_back(axis_value(value, place_of(origin, value), axis.key));
    if (axis.values.empty()) place_of(origin, values).fail("axes.{}: has no values", axis.key);
    axes.push_back(std::move(axis));
  }
  return axes;
}

/// A skip rule: a case is left out if it says all of these.
struct Skip {
  Place at;
  std::string text;
  std::map<std::string, std::string> pairs;
  int matches = 0;
  bool fits(const std::map<std::string, std::string>& said) const {
    for (const auto& [key, value] : pairs) {
      const auto found = said.find(key);
      if (found == said.end()) at.fail("skip '{}': neither base nor axes say {}", text, key);
      if (found->second != value) return false;
    }
    return true;
  }
};

/// Fails unless `word` is one of `known`; names the nearest.
template <size_t n>
void check_word(std::string_view word, const std::string_view (&known)[n], const Place& at, std::string_view key) {
  if (std::find(known, known + n, word) != known + n) return;
  const std::string near = nearest(word, known, n);
  at.fail("{} '{}'{}", key, word, near.empty() ? fmt::format("; known: {}", fmt::join(known, ", ")) : fmt::format("; did you mean '{}'?", near));
}

void check_expect(const std::string& expect, const Place& at) {
  static constexpr std::string_view kWords[] = {"pass", "mistrusted", "unsupported"};
  const size_t colon = expect.find(':');
  check_word(std::string_view(expect).substr(0, colon), kWords, at, "expect: unknown word");
  const bool of_kernel = colon != expect.npos && colon + 1 < expect.size();
  if (of_kernel != expect.starts_with("unsupported")) at.fail("expect: '{}'; want pass, mistrusted or unsupported:KERNEL", expect);
}

/// A [[group]] as it stands in the text.
struct Group {
  Place at;
  SuiteCase proto;  // what its cases have in common
  std::string base;
  std::vector<Axis> axes;
  std::vector<Skip> skips;
};

Group read_group(const toml::table& table, const std::string& origin) {
  static constexpr std::string_view kKeys[] = {"name", "why", "tags", "expect", "base", "axes", "skip"};
  static constexpr std::string_view kTags[] = {"cpu", "gpu", "time"};
  Group group{place_of(origin, table), {}, {}, {}, {}};
  for (const auto& [key, node] : table) {
    const Place at = place_of(origin, node);
    const std::string_view name = key.str();
    if (name == "name") group.proto.group = text_of(node, at, name);
    else if (name == "why") group.proto.why = text_of(node, at, name);
    else if (name == "base") group.base = text_of(node, at, name);
    else if (name == "axes") group.axes = axes_of(node, origin);
    else if (name == "expect") check_expect(group.proto.expect = text_of(node, at, name), at);
    else if (name == "skip") {
      for (const std::string& text : texts_of(node, origin, name)) group.skips.push_back({at, text, pairs_of(text)});
    } else if (name == "tags") {
      for (const std::string& tag : group.proto.tags = texts_of(node, origin, name)) check_word(tag, kTags, at, "tags: unknown tag");
    } else {
      check_word(name, kKeys, at, "unknown key");
    }
  }
  if (group.proto.group.empty()) group.at.fail("group without a name");
  if (group.proto.why.empty()) group.at.fail("group '{}' does not say why", group.proto.group);
  if (group.base.empty()) group.at.fail("group '{}' has no base", group.proto.group);
  return group;
}

/// Appends the product of the axes, the last one fastest, without what is skipped.
void expand(Group& group, std::vector<SuiteCase>& cases) {
  const std::string& name = group.proto.group;
  const auto base = pairs_of(group.base);
  double product = 1;
  for (const Axis& axis : group.axes) {
    if (base.count(axis.key) != 0) group.at.fail("group '{}': {} stands in base and in axes", name, axis.key);
    product *= static_cast<double>(axis.values.size());
  }
  if (product > 1e6) group.at.fail("group '{}': the axes span {} cases, more than a million", name, product);
  for (size_t i = 0; i < static_cast<size_t>(product); ++i) {
    auto said = base;
    size_t rest = i;
    for (size_t a = group.axes.size(); a-- > 0; rest /= group.axes[a].values.size())
      said[group.axes[a].key] = group.axes[a].values[rest % group.axes[a].values.size()];
    bool skipped = false;
    for (Skip& skip : group.skips)
      if (skip.fits(said)) ++skip.matches, skipped = true;
    if (skipped) continue;
    std::string line = group.base;
    for (const Axis& axis : group.axes) line += fmt::format(" {}={}", axis.key, said[axis.key]);
    try {
      group.proto.c = parse_line(line);
    } catch (const UsageError& error) { group.at.fail("group '{}': {} (in '{}')", name, error.what(), line); }
    cases.push_back(group.proto);
  }
  for (const Skip& skip : group.skips)
    if (skip.matches == 0) skip.at.fail("skip '{}': leaves nothing out", skip.text);
}

}  // namespace

Suite parse_suite(std::string_view text, const std::string& origin) {
  check_characters(text, origin);
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) { Place{origin, static_cast<int64_t>(error.source().begin.line)}.fail("{}", error.description()); }
  Suite suite;
  suite.name = std::filesystem::path(origin).stem().string();
  for (const auto& [key, node] : root) {
    if (key.str() != "group") place_of(origin, node).fail("unknown key '{}'; a suite is a list of [[group]]", key.str());
    for (const toml::node& item : array_of(node, place_of(origin, node), "group")) {
      if (!item.is_table()) place_of(origin, item).fail("group: is not a table");
      Group group = read_group(*item.as_table(), origin);
      expand(group, suite.cases);
    }
  }
  if (suite.cases.empty()) throw UsageError(fmt::format("{}: has no [[group]]", origin));
  std::map<std::string, const SuiteCase*> seen;
  for (const SuiteCase& item : suite.cases) {
    const auto [first, fresh] = seen.emplace(to_line(item.c), &item);
    if (!fresh)
      throw UsageError(
          one_line(fmt::format("{}: groups '{}' and '{}' hold the same case: {}", origin, first->second->group, item.group, first->first)));
  }
  return suite;
}

Suite load_suite_file(const std::string& path) { return parse_suite(read_input_file(path, true), path); }

Suite load_suite(std::string_view name) {
  std::vector<std::string_view> names;
  for (const EmbeddedSuite& suite : embedded_suites()) {
    if (suite.name == name) return parse_suite(suite.text, fmt::format("{}.toml", name));
    names.push_back(suite.name);
  }
  throw_unknown_value("suite", name, names.data(), names.size());
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const EmbeddedSuite& suite : embedded_suites()) names.emplace_back(suite.name);
  return names;
}

}  // namespace smla
