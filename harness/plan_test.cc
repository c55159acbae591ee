// SPDX-License-Identifier: Apache-2.0
#include "harness/plan.h"

#include <set>

#include "harness/cards.h"
#include "harness/checks.h"
#include "harness/exit_status.h"
#include "smla_catch.h"

using namespace smla;

namespace {

Options lines(std::vector<std::string> cases) {
  Options options;
  options.case_lines = std::move(cases);
  return options;
}

std::vector<Candidate> named(std::vector<std::string> names) {
  std::vector<Candidate> out;
  for (std::string& name : names) out.push_back({{name, "", "cpu"}, nullptr});
  return out;
}

}  // namespace

TEST_CASE("suite quick is the default, in order and without doubles") {
  const std::vector<PlannedCase> plan = plan_cases({});
  CHECK(plan.size() > 20);
  std::set<std::string> ids;
  for (const PlannedCase& planned : plan) {
    CHECK(planned.suite == "quick");
    CHECK(ids.insert(case_id(planned.c())).second);
  }
  Options twice;
  twice.suites = {"quick", "quick"};
  CHECK(plan_cases(twice).size() == plan.size());
}

TEST_CASE("--set multiplies, and keys whose default follows another key follow it") {
  Options options = lines({"decode b=1 s_q=1 h_q=8 s_kv=100 topk=10"});
  options.sets = {"page_size=16,32", "h_q=1,5,8"};
  const std::vector<PlannedCase> plan = plan_cases(options);
  REQUIRE(plan.size() == 6);
  CHECK(to_line(plan[0].c()) == "decode b=1 s_q=1 h_q=1 s_kv=100 topk=10 page_size=16");
  CHECK(to_line(plan[5].c()) == "decode b=1 s_q=1 h_q=8 s_kv=100 topk=10 page_size=32");
  CHECK(plan[5].c().page_stride_rows == 32);

  options.sets = {"h_q=1", "h_q=5"};
  CHECK_THROWS_WITH(plan_cases(options), ContainsSubstring("h_q is set twice"));
  options.sets = {"topkk=3"};
  CHECK_THROWS_WITH(plan_cases(options), ContainsSubstring("topk"));
  options.sets = {"topk"};
  CHECK_THROWS_AS(plan_cases(options), UsageError);
}

TEST_CASE("--filter keeps what matches all, --skip drops what matches any") {
  Options options =
      lines({"decode b=1 s_q=1 h_q=8 s_kv=100 topk=10", "decode b=2 s_q=1 h_q=8 s_kv=100 topk=10", "prefill b=1 s_q=4 h_q=8 s_kv=100 topk=10"});
  options.filters = {"b=1 ", "decode"};
  CHECK(plan_cases(options).size() == 1);
  options.filters = {};
  options.skips = {"prefill", "b=2"};
  CHECK(plan_cases(options).size() == 1);
  options.skips = {"topk"};
  CHECK_THROWS_AS(plan_cases(options), NothingMatched);
  options.skips = {"("};
  CHECK_THROWS_WITH(plan_cases(options), ContainsSubstring("--skip '('"));
}

TEST_CASE("shards part the cases, and editing a suite moves none of the others") {
  const std::vector<PlannedCase> all = plan_cases({});
  std::set<std::string> seen;
  for (int i = 1; i <= 4; ++i) {
    Options options;
    options.shard_index = i;
    options.shard_count = 4;
    for (const PlannedCase& planned : plan_cases(options)) CHECK(seen.insert(case_id(planned.c())).second);
  }
  CHECK(seen.size() == all.size());

  // A case's part depends on nothing but the case: not on what stands beside it, and not on the version of this program.
  const auto part_of = [](Options options, const std::string& line) {
    options.shard_count = 5;
    for (options.shard_index = 1; options.shard_index <= 5; ++options.shard_index) try {
        for (const PlannedCase& planned : plan_cases(options))
          if (to_line(planned.c()) == line) return options.shard_index;
      } catch (const NothingMatched&) {}
    return 0;
  };
  const std::vector<std::pair<std::string, int>> parts{{"decode b=1 s_q=1 h_q=8 s_kv=100 topk=10", 4},
                                                       {"decode b=2 s_q=1 h_q=8 s_kv=100 topk=10", 5},
                                                       {"prefill b=1 s_q=4 h_q=8 s_kv=100 topk=10", 4}};
  std::vector<std::string> every;
  for (const auto& [line, part] : parts) every.push_back(line);
  for (const auto& [line, part] : parts) {
    CHECK(part_of(lines({line}), line) == part);
    CHECK(part_of(lines(every), line) == part);
  }
}

TEST_CASE("kernels by glob: an unknown name suggests, a glob without a match says so") {
  const std::vector<Candidate> all = named({"cpu_naive", "cpu_split", "cpu_dense"});
  CHECK(choose_kernels(all, {"cpu_*"}).size() == 3);
  CHECK(choose_kernels(all, {"cpu_split", "*dense"}).size() == 2);
  CHECK(choose_kernels(all, {"*naive", "cpu_n*"}).size() == 1);
  CHECK_THROWS_WITH(choose_kernels(all, {"cpu_splitt"}), ContainsSubstring("cpu_split"));
  CHECK_THROWS_AS(choose_kernels(all, {"cpu_splitt"}), UsageError);
  CHECK_THROWS_AS(choose_kernels(all, {"gpu_*"}), NothingMatched);
}

TEST_CASE("checks by name") {
  CHECK(parse_checks("none").empty());
  CHECK(parse_checks("all").size() == checks().size());
  CHECK(parse_checks("quick").size() < parse_checks("all").size());
  const std::vector<size_t> two = parse_checks("poison,guards,poison");
  REQUIRE(two.size() == 2);
  CHECK(checks()[two[0]].name == "guards");
  CHECK(checks()[two[1]].name == "poison");
  CHECK_THROWS_WITH(parse_checks("poisson"), ContainsSubstring("poison"));
  CHECK_THROWS_AS(parse_checks(""), UsageError);
}

TEST_CASE("a contract excludes what it says it excludes") {
  const auto excluded = [](const Contract& contract, const char* line) { return contract_excludes(contract, make_inputs(parse_line(line))); };
  constexpr const char* plain = "decode b=2 s_q=1 h_q=8 s_kv=300 topk=100";
  constexpr const char* holes = "decode b=2 s_q=1 h_q=8 s_kv=300 topk=100 pattern=interleaved_invalid";
  constexpr const char* twice = "decode b=2 s_q=1 h_q=8 s_kv=300 topk=100 pattern=duplicates";
  constexpr const char* beyond = "decode b=2 s_q=1 h_q=8 s_kv=300 topk=100 pattern=out_of_range";
  Contract any, tail, once, minus_one, negative;
  tail.padding = Padding::tail_only;
  once.duplicates = Duplicates::undefined;
  minus_one.invalid_index = InvalidIndex::minus_one;
  negative.invalid_index = InvalidIndex::negative;
  for (const char* line : {plain, holes, twice, beyond}) CHECK(excluded(any, line).empty());
  for (const Contract& contract : {tail, once, minus_one, negative}) CHECK(excluded(contract, plain).empty());
  CHECK_THAT(excluded(tail, holes), ContainsSubstring("tail_only"));
  CHECK_THAT(excluded(once, twice), ContainsSubstring("duplicates"));
  CHECK_THAT(excluded(minus_one, beyond), ContainsSubstring("minus_one"));
  CHECK_THAT(excluded(negative, beyond), ContainsSubstring("negative"));
  CHECK(excluded(minus_one, holes).empty());
}

TEST_CASE("several cards: every case is on exactly one, the work goes card by card, and the worst status counts") {
  Options options;
  options.suites = {"quick"};
  options.gpus = {4, 5, 7};
  const size_t all = plan_cases(options).size();
  std::set<std::string> seen;
  std::vector<int> cards;
  const auto work = [&](const Options& one) {
    REQUIRE(one.gpus.size() == 1);
    cards.push_back(one.gpus[0]);
    const std::vector<PlannedCase> mine = plan_cases(one);
    CHECK(mine.size() > all / 6);  // about a third each
    for (const PlannedCase& planned : mine) {
      CHECK(seen.insert(case_id(planned.c())).second);
      CHECK(options.gpus[card_of(options, planned.c())] == one.gpus[0]);
    }
    return one.gpus[0] == 5 ? kThroughputRed : kAllGreen;
  };
  CHECK(on_each_card(options, work) == kThroughputRed);
  CHECK(seen.size() == all);
  CHECK(cards == std::vector<int>{4, 5, 7});

  const auto ends_with = [&](std::vector<int> statuses) {
    size_t next = 0;
    return on_each_card(options, [&](const Options&) { return statuses.at(next++); });
  };
  CHECK(ends_with({kNoPass, kAllGreen, kNoPass}) == kAllGreen);
  CHECK(ends_with({kNoPass, kNoPass, kNoPass}) == kNoPass);
  CHECK(ends_with({kThroughputRed, kCorrectnessRed, kAllGreen}) == kCorrectnessRed);
  CHECK(ends_with({kAllGreen, 128 + 2}) == 128 + 2);  // and the third card is not begun
  options.gpus = {3};
  CHECK(on_each_card(options, [&](const Options& one) { return static_cast<int>(plan_cases(one).size()); }) == static_cast<int>(all));
}
