// SPDX-License-Identifier: Apache-2.0
#include "harness/selftest/suite_cover.h"

#include <algorithm>
#include <sstream>
#include <string_view>

namespace smla {

std::set<std::string> axis_values(const Case& c) {
  constexpr std::string_view kSizes[] = {"b", "s_q", "s_kv", "topk", "seed", "needle0"};
  const std::string pattern(name_of(c.pattern)), values(name_of(c.values)), format(name_of(c.kv_format));
  std::set<std::string> wanted{values + " " + format};
  if (c.kv_format != KvFormat::fp16) wanted.insert(pattern + " " + format);
  std::istringstream words(to_line(c));
  for (std::string word; words >> word;)
    if (std::find(std::begin(kSizes), std::end(kSizes), std::string_view(word).substr(0, word.find('='))) == std::end(kSizes)) wanted.insert(word);
  return wanted;
}

std::vector<size_t> greedy_cover(std::vector<Coverable> from) {
  std::vector<size_t> adds(from.size());
  const auto take = [&](size_t i) {
    adds[i] = from[i].elements.size();
    const std::set<std::string> taken = std::move(from[i].elements);
    for (Coverable& left : from) std::erase_if(left.elements, [&](const std::string& element) { return taken.count(element) > 0; });
  };
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i].wanted) take(i);
  while (true) {
    const auto gain = [](const Coverable& c) { return std::pair(c.elements.size(), -c.work); };
    const auto best = std::max_element(from.begin(), from.end(), [&](const Coverable& a, const Coverable& b) { return gain(a) < gain(b); });
    if (best == from.end() || best->elements.empty()) return adds;
    take(static_cast<size_t>(best - from.begin()));
  }
}

}  // namespace smla
