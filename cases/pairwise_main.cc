// SPDX-License-Identifier: Apache-2.0
// Writes suites/regression.toml to stdout: a set of cases in which any two values of any two axes meet, wherever a case may hold both. Greedy: each
// case is a valid one that holds a pair not yet met, changed an axis at a time while it meets more of them; in the end, what meets nothing alone is
// dropped.
//   cmake --build build/host --target cases_pairwise && build/host/cases/cases_pairwise > cases/suites/regression.toml
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "cases/pairwise.h"
#include "cases/random.h"

namespace smla::pairwise {
namespace {

constexpr const char* kHead = R"(# SPDX-License-Identifier: Apache-2.0
# Written by cases/pairwise_main.cc: any two values of any two axes (cases/pairwise.cc) meet in at least one case, and `why` names a pair that no other case
# holds. Cases that are not tagged gpu stay within T * h_q * topk = 2^18 each and 2^25 together.

[[group]]
name = "needle_2048"
why = "every one of 2048 list entries is the only one that counts for some row: 128 of them a case"
base = "decode b=16 s_q=1 h_q=8 s_kv=3000 topk=2048 values=needle"
axes = { needle0 = [0, 128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920] }

)";

using Pair = std::pair<int, int>;  // two values, numbered over all axes

/// Numbers of the values of the first axes.
std::vector<int> offsets() {
  std::vector<int> first{0};
  for (const Axis& axis : axes()) first.push_back(first.back() + static_cast<int>(axis.values.size()));
  return first;
}

std::vector<Pair> pairs_of(const Choice& choice) {
  static const std::vector<int> first = offsets();
  std::vector<Pair> pairs;
  for (size_t a = 0; a < choice.size(); ++a)
    for (size_t b = a + 1; b < choice.size(); ++b) pairs.push_back({first[a] + choice[a], first[b] + choice[b]});
  return pairs;
}

std::string name_of_value(int number) {
  static const std::vector<int> first = offsets();
  const auto axis = std::upper_bound(first.begin(), first.end(), number) - first.begin() - 1;
  return axes()[axis].values[number - first[axis]];
}

using Fits = bool (*)(const Case&);
bool is_allowed(const Choice& choice, Fits fits) {
  const auto c = spell(choice);
  return c && fits(*c);
}

/// A random allowed choice that holds both values, if some thousand attempts find one.
std::optional<Choice> complete(Random& random, const Pair& pair, Fits fits) {
  static const std::vector<int> first = offsets();
  for (int attempt = 0; attempt < 4000; ++attempt) {
    Choice choice;
    for (size_t a = 0; a < axes().size(); ++a) {
      choice.push_back(static_cast<int>(random.below(static_cast<int64_t>(axes()[a].values.size()))));
      for (const int value : {pair.first, pair.second})
        if (value >= first[a] && value < first[a + 1]) choice.back() = value - first[a];
    }
    if (is_allowed(choice, fits)) return choice;
  }
  return std::nullopt;
}

int count_new(const std::set<Pair>& left, const Choice& choice) {
  int count = 0;
  for (const Pair& pair : pairs_of(choice)) count += static_cast<int>(left.count(pair));
  return count;
}

/// Changes one axis at a time while the choice holds more pairs of `left`, or as many at less work.
Choice climb(Random& random, Choice choice, const std::set<Pair>& left, Fits fits) {
  const auto worth = [&](const Choice& c) { return std::pair(count_new(left, c), -work(*spell(c))); };
  auto best = worth(choice);
  std::vector<int> order(axes().size());
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < 3; ++round) {
    random.shuffle(order.data(), static_cast<int64_t>(order.size()));
    for (const int a : order)
      for (int v = 0; v < static_cast<int>(axes()[a].values.size()); ++v) {
        Choice other = choice;
        other[a] = v;
        if (!is_allowed(other, fits)) continue;
        if (const auto value = worth(other); value > best) best = value, choice = other;
      }
  }
  return choice;
}

/// Covers what of `left` fits; what does not stays there.
void cover(Random& random, std::set<Pair>& left, Fits fits, std::vector<Choice>& cases) {
  std::vector<Pair> todo(left.begin(), left.end());
  random.shuffle(todo.data(), static_cast<int64_t>(todo.size()));
  for (const Pair& pair : todo) {
    if (left.count(pair) == 0) continue;
    std::optional<Choice> best;
    for (int candidate = 0; candidate < 4; ++candidate) {
      const auto start = complete(random, pair, fits);
      if (!start) break;
      const Choice climbed = climb(random, *start, left, fits);
      if (left.count(pair) != 0 && (!best || count_new(left, climbed) > count_new(left, *best))) best = climbed;
    }
    if (!best) continue;
    for (const Pair& met : pairs_of(*best)) left.erase(met);
    cases.push_back(*best);
  }
}

void write() {
  Random random(1, Draw::pattern, 0);
  std::set<Pair> left;
  const std::vector<int> first = offsets();
  for (size_t a = 0; a < axes().size(); ++a)
    for (size_t b = a + 1; b < axes().size(); ++b)
      for (int v = first[a]; v < first[a + 1]; ++v)
        for (int w = first[b]; w < first[b + 1]; ++w) left.insert({v, w});
  std::vector<Choice> cases;
  while (true) {  // a climb may leave the pair it came from: until nothing more is met
    const size_t before = left.size();
    cover(random, left, fits_cpu, cases);
    if (left.size() == before) break;
  }
  while (true) {
    const size_t before = left.size();
    cover(random, left, fits_gpu, cases);
    if (left.size() == before) break;
  }
  for (const Pair& pair : left) fmt::print(stderr, "never together: {} and {}\n", name_of_value(pair.first), name_of_value(pair.second));

  std::map<Pair, int> times;
  for (const Choice& choice : cases)
    for (const Pair& pair : pairs_of(choice)) ++times[pair];
  const auto only_here = [&](const Choice& choice) {
    std::vector<Pair> pairs = pairs_of(choice);
    pairs.erase(std::remove_if(pairs.begin(), pairs.end(), [&](const Pair& pair) { return times[pair] > 1; }), pairs.end());
    return pairs;
  };
  for (size_t i = 0; i < cases.size();) {
    if (!only_here(cases[i]).empty()) {
      ++i;
      continue;
    }
    for (const Pair& pair : pairs_of(cases[i])) --times[pair];
    cases.erase(cases.begin() + static_cast<int64_t>(i));
  }

  fmt::print("{}", kHead);
  double sum = 0;
  uint64_t seed = 1;
  for (const Choice& choice : cases) {
    Case c = *spell(choice);
    c.seed = seed++;
    const std::vector<Pair> unique = only_here(choice);
    const Pair& pair = unique[random.below(static_cast<int64_t>(unique.size()))];
    fmt::print("[[group]]\nname = \"{}\"\nwhy = \"only here: {} with {}\"\n", name_of(c.pattern), name_of_value(pair.first),
               name_of_value(pair.second));
    if (!fits_cpu(c)) fmt::print("tags = [\"gpu\"]\n");
    else sum += work(c);
    fmt::print("base = \"{}\"\n\n", to_line(c));
  }
  fmt::print(stderr, "{} cases, T * h_q * topk = 2^{:.2f} over those not tagged gpu\n", cases.size(), std::log2(sum));
}

}  // namespace
}  // namespace smla::pairwise

int main() { smla::pairwise::write(); }
