// SPDX-License-Identifier: Apache-2.0
#include "reports/known_issues.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <toml++/toml.h>

#include <algorithm>

namespace smla {
namespace {

[[noreturn]] void fail(const std::string& origin, const toml::source_region& where, const std::string& why) {
  throw UsageError(fmt::format("{}:{}: {}", origin, where.begin.line, clean_text(why)));  // what it quotes may hold a line feed
}

}  // namespace

bool KnownIssue::matches(const Common& row) const {
  return ::fnmatch(kernel.c_str(), row.kernel.c_str(), 0) == 0 && ::fnmatch(arch.c_str(), row.arch.c_str(), 0) == 0 &&
         case_filter.found_in(to_line(row.c));
}

std::vector<KnownIssue> parse_known_issues(std::string_view text, const std::string& origin) {
  // toml++ 3.3 runs into undefined behaviour over some characters beyond ASCII where it does not expect them.
  const auto beyond = std::find_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  if (beyond != text.end()) throw UsageError(fmt::format("{}:{}: a character beyond ASCII", origin, 1 + std::count(text.begin(), beyond, '\n')));
  toml::table document;
  try {
    document = toml::parse(text, origin);
  } catch (const toml::parse_error& error) { fail(origin, error.source(), std::string(error.description())); }

  std::vector<KnownIssue> issues;
  for (const auto& [name, node] : document) {
    if (name.str() != "issue") fail(origin, name.source(), fmt::format("unknown key \"{}\": a list of [[issue]] is expected", name.str()));
    if (!node.is_array_of_tables()) fail(origin, node.source(), "write [[issue]], a list of tables");
    for (const toml::node& entry : *node.as_array()) {
      KnownIssue issue;
      issue.origin = fmt::format("{}:{}", origin, entry.source().begin.line);
      std::string case_filter;
      const std::pair<std::string_view, std::string*> known[] = {
          {"kernel", &issue.kernel}, {"case", &case_filter}, {"arch", &issue.arch}, {"reason", &issue.reason}, {"link", &issue.link}};
      for (const auto& [key, value] : *entry.as_table()) {
        std::string* member = nullptr;
        for (const auto& [word, target] : known)
          if (key.str() == word) member = target;
        if (member == nullptr) {
          std::vector<std::string_view> words;
          for (const auto& pair : known) words.push_back(pair.first);
          const std::string near = nearest(key.str(), words.data(), words.size());
          fail(origin, key.source(),
               fmt::format("unknown key \"{}\" of an issue{}", key.str(), near.empty() ? "" : "; did you mean \"" + near + "\"?"));
        }
        const auto string = value.value_exact<std::string>();
        if (!string) fail(origin, value.source(), fmt::format("{} must be a string", key.str()));
        *member = *string;
      }
      if (issue.kernel.empty()) fail(origin, entry.source(), "an issue needs a kernel (a glob)");
      if (issue.reason.empty()) fail(origin, entry.source(), "an issue needs a reason");
      try {
        issue.case_filter = TypedRegex(case_filter);
      } catch (const UsageError& error) {
        fail(origin, entry.source(), fmt::format("case = \"{}\" is no regular expression: {}", case_filter.substr(0, 200), error.what()));
      }
      issues.push_back(std::move(issue));
    }
  }
  return issues;
}

std::vector<KnownIssue> read_known_issues(const std::string& path) { return parse_known_issues(read_text_file(path), path); }

}  // namespace smla
