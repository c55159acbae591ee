// SPDX-License-Identifier: Apache-2.0
// Suite regression: any two values of any two axes meet, unless no case can hold both.
#include "cases/pairwise.h"

#include <algorithm>
#include <map>
#include <set>

#include "cases/random.h"
#include "cases/suite.h"
#include "smla_catch.h"

using namespace smla;
using namespace smla::pairwise;

namespace {

using Pair = std::pair<std::string, std::string>;  // as words

std::vector<Pair> pairs_of(const Choice& choice) {
  std::vector<Pair> pairs;
  for (size_t a = 0; a < choice.size(); ++a)
    for (size_t b = a + 1; b < choice.size(); ++b) pairs.push_back({axes()[a].values[choice[a]], axes()[b].values[choice[b]]});
  return pairs;
}

}  // namespace

TEST_CASE("a case is read back to the choice that spells it") {
  for (const SuiteCase& item : load_suite("regression").cases) {
    if (item.group == "needle_2048") continue;
    INFO(to_line(item.c));
    const auto choice = read(item.c);
    REQUIRE(choice);
    Case again = *spell(*choice);
    again.seed = item.c.seed;
    REQUIRE(again == item.c);
  }
  CHECK_FALSE(read(parse_line("decode b=7")));
}

TEST_CASE("every two values that can meet do, each case holds a pair alone and says which, and the sums fit") {
  std::map<Pair, int> times;
  double sum = 0;
  const Suite suite = load_suite("regression");
  for (const SuiteCase& item : suite.cases) {
    INFO(to_line(item.c));
    const bool gpu = std::count(item.tags.begin(), item.tags.end(), "gpu") != 0;
    REQUIRE(fits_cpu(item.c) == !gpu);
    REQUIRE(fits_gpu(item.c));
    if (!gpu) sum += work(item.c);
    if (item.group == "needle_2048") continue;
    for (const Pair& pair : pairs_of(*read(item.c))) ++times[pair];
  }
  CHECK(sum <= 1 << 25);
  for (const SuiteCase& item : suite.cases) {
    if (item.group == "needle_2048") continue;
    INFO(item.why);
    const auto pairs = pairs_of(*read(item.c));
    REQUIRE(std::any_of(pairs.begin(), pairs.end(),
                        [&](const Pair& pair) { return times[pair] == 1 && item.why == "only here: " + pair.first + " with " + pair.second; }));
  }
  Random random(1, Draw::pattern, 0);
  int missing = 0;
  for (size_t a = 0; a < axes().size(); ++a)
    for (size_t b = a + 1; b < axes().size(); ++b)
      for (size_t v = 0; v < axes()[a].values.size(); ++v)
        for (size_t w = 0; w < axes()[b].values.size(); ++w) {
          if (times.count({axes()[a].values[v], axes()[b].values[w]}) != 0) continue;
          ++missing;
          INFO(axes()[a].values[v] << " with " << axes()[b].values[w]);
          for (int attempt = 0; attempt < 200; ++attempt) {  // no case holds both
            Choice choice;
            for (const Axis& axis : axes()) choice.push_back(static_cast<int>(random.below(static_cast<int64_t>(axis.values.size()))));
            choice[a] = static_cast<int>(v), choice[b] = static_cast<int>(w);
            REQUIRE_FALSE(spell(choice));
          }
        }
  CHECK(missing < 120);
}
