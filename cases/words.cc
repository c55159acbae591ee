// SPDX-License-Identifier: Apache-2.0
#include "cases/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace smla {
namespace {

/// Levenshtein distance: insertions, deletions and substitutions, each of cost 1.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::string_view* names, size_t count) {
  size_t best = std::max<size_t>(1, word.size() / 2) + 1;  // farther than half the word is no suggestion
  std::string_view found;
  for (size_t i = 0; i < count; ++i)
    if (const size_t distance = edit_distance(word, names[i]); distance < best) best = distance, found = names[i];
  return std::string(found);
}

void throw_unknown_value(std::string_view key, std::string_view word, const std::string_view* names, size_t count) {
  const std::string near = nearest(word, names, count);
  if (!near.empty()) throw UsageError(fmt::format("{}: unknown value '{}'; did you mean '{}'?", key, word, near));
  throw UsageError(fmt::format("{}: unknown value '{}'; known: {}", key, word, fmt::join(names, names + count, " ")));
}

}  // namespace smla
