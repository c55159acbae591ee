// SPDX-License-Identifier: Apache-2.0
// What is known to be wrong and may be red for now: a reviewed list, from which an entry must go once it passes.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "reports/record.h"
#include "reports/text.h"

namespace smla {

/// One [[issue]] of known_issues.toml: `kernel` and `arch` are globs (arch defaults to *), `case` a regular expression found in the case line
/// (defaults to all). `reason` is required, `link` is not.
struct KnownIssue {
  std::string kernel;
  TypedRegex case_filter;
  std::string arch = "*", reason, link;
  std::string origin;  // "FILE:LINE"
  bool matches(const Common& row) const;
};

/// Errors: UsageError "FILE:LINE: ..." for TOML syntax, an unknown key (naming the nearest), a missing one, a bad regular expression.
std::vector<KnownIssue> parse_known_issues(std::string_view text, const std::string& origin);
std::vector<KnownIssue> read_known_issues(const std::string& path);

}  // namespace smla
