// SPDX-License-Identifier: Apache-2.0
#include "harness/flags.h"

#include <map>
#include <regex>
#include <set>

#include "cases/words.h"
#include "harness/testing/program.h"
#include "harness/verbs/verbs.h"

using namespace smla;

namespace {

const char* const kVerbs[] = {"list cases",   "list kernels", "list suites", "list patterns", "list support", "list checks",
                              "list mutants", "list indices", "check",       "bench",         "run",          "compare",
                              "gate",         "capture",      "replay",      "selftest",      "device"};

/// Flags that the help of a verb shows, and the type behind each.
const std::map<std::string, std::string>& shown(const std::string& verb) {
  static std::map<std::string, std::map<std::string, std::string>> known;
  const auto [at, first] = known.try_emplace(verb);
  if (!first) return at->second;
  const Ran help = run(verb + " --help");
  REQUIRE(help.status == 0);
  CHECK_THAT(help.text, ContainsSubstring("usage: ./smla " + verb + " "));
  const std::regex line("\n  (?:-[a-z],)?(--[a-z_-]+)(?: (\\S+))?");
  for (std::sregex_iterator it(help.text.begin(), help.text.end(), line), end; it != end; ++it) at->second[(*it)[1]] = (*it)[2];
  REQUIRE(at->second.erase("--help") == 1);
  return at->second;
}

/// A value that a flag of this type takes.
std::string value_of(const std::string& type) {
  static const std::map<std::string, std::string> values{{"N", "1"},     {"SHARE", "3%"},   {"SECONDS", "1"}, {"TIMES", "1"},
                                                         {"i/n", "1/1"}, {"LIST|all", "0"}, {"all|N", "1"}};
  const auto found = values.find(type);
  return found != values.end() ? found->second : type.substr(0, type.find('|'));
}

/// What the verb says of these words. They must not be all right, or it runs.
std::string refusal(const std::string& verb, std::vector<std::string> words) {
  const size_t space = verb.find(' ');
  if (space != verb.npos) words.insert(words.begin(), verb.substr(space + 1));
  words.insert(words.begin(), verb.substr(0, space));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (const Verb& known : verbs()) {
    if (known.name != words[0]) continue;
    try {
      known.main(static_cast<int>(words.size()), argv.data());
    } catch (const UsageError& error) { return error.what(); }
  }
  return "it ran";
}

}  // namespace

TEST_CASE("a verb takes the flags that its help shows, and no other") {
  std::map<std::string, std::string> all;
  for (const char* verb : kVerbs)
    for (const auto& [flag, type] : shown(verb)) all[flag] = type;
  REQUIRE(all.size() > 40);
  for (const char* verb : kVerbs)
    for (const auto& [flag, type] : all) {
      const auto own = shown(verb).find(flag);
      std::vector<std::string> words{flag};
      if (own != shown(verb).end() && !own->second.empty()) words.push_back(value_of(own->second));
      words.push_back("--no-such-flag");
      INFO(verb << " " << flag);
      CHECK_THAT(refusal(verb, words), ContainsSubstring("unknown flag '" + (own != shown(verb).end() ? "--no-such-flag" : flag) + "'"));
    }
}

TEST_CASE("no verb shows a flag that it would not heed") {
  const auto names = [](const std::string& verb) {
    std::set<std::string> flags;
    for (const auto& [flag, type] : shown(verb)) flags.insert(flag);
    return flags;
  };
  CHECK(names("capture") == std::set<std::string>{"--kernel", "--plugin", "--python", "--gpu", "--case-timeout", "--threads"});
  CHECK(names("device") == std::set<std::string>{"--gpu", "--threads"});
  CHECK(names("list kernels") == std::set<std::string>{"--kernel", "--plugin", "--python"});
  for (const char* list : {"suites", "patterns", "checks", "mutants", "indices"}) CHECK(names(std::string("list ") + list).empty());
  for (const char* flag : {"--plugin", "--python", "--oracle-rows", "--dump", "--verbose"}) CHECK(!names("selftest").contains(flag));
  // Flags that go without one another.
  CHECK_THAT(refusal("gate", {"--baseline", "b", "--update-baseline", "--max-loss", "3%"}), ContainsSubstring("--max-loss has no effect"));
  CHECK_THAT(refusal("gate", {"--baseline", "b", "--accuracy-only", "--noise-factor", "2"}), ContainsSubstring("--noise-factor has no effect"));
  CHECK_THAT(refusal("compare", {"a/b", "a/c", "--in", "d"}), ContainsSubstring("--in"));
  CHECK_THAT(refusal("selftest", {"--quick", "--pairs", "3"}), ContainsSubstring("--pairs has no effect"));
  CHECK_THAT(refusal("check", {"--retry"}), ContainsSubstring("--resume"));
}

TEST_CASE("list kernels heeds --kernel") {
  CHECK(lines(run("list kernels --kernel cpu_naive").text) == 1);
  CHECK(lines(run("list kernels").text) > 100);
}

TEST_CASE("help tells the defaults") {
  const struct {
    const char *verb, *flag, *by_default;
  } defaults[] = {
      {"check", "--checks", "quick"},
      {"bench", "--checks", "none"},
      {"check", "--out", "reports/out"},
      {"bench", "--max-time", "1"},
      {"gate", "--max-loss", "3%"},
      {"compare", "--margin", "1%"},
      {"replay", "--rows", "8"},
      {"check", "--case-timeout", "60"},
      {"selftest", "--case-timeout", "30"},
      {"selftest", "--pairs", "10000"},
      {"check", "--kernel", "your own, else the built-in ones"},
      {"list kernels", "--kernel", "all"},
      {"bench", "--max-noise", "0.5% on a GPU, 2% on a CPU"},
  };
  for (const auto& [verb, flag, by_default] : defaults) {
    INFO(verb << " " << flag);
    const std::string text = run(std::string(verb) + " --help").text;
    const size_t at = text.find(std::string("\n  ") + flag + " ");
    REQUIRE(at != text.npos);
    CHECK_THAT(text.substr(at + 1, text.find('\n', at + 1) - at), ContainsSubstring(std::string("(default: ") + by_default + ")"));
  }
}

TEST_CASE("a share is 3% or 0.03: a bare number from 1 on could be either, and is refused with what to write") {
  CHECK(parse_share("--max-loss", "3%", 10) == 0.03);
  CHECK(parse_share("--max-loss", "0.03", 10) == 0.03);
  CHECK(parse_share("--max-loss", "200%", 10) == 2);
  CHECK(parse_share("--max-loss", "0", 10) == 0);
  CHECK_THROWS_WITH(parse_share("--max-loss", "3", 10), "--max-loss 3: write 3% or 300%: a number without % is a fraction, below 1");
  for (const char* wrong : {"1001%", "-1%", "-0.01", "nan", "nan%", "inf", "", "%", "3 %", "3%%", "0,03", "many"})
    CHECK_THROWS_WITH(parse_share("--max-loss", wrong, 10), ContainsSubstring("want a share from 0% to 1000%: 3%, or 0.03"));
  CHECK(share_text(0.005) == "0.5%");
  CHECK(parse_share("--max-noise", share_text(0.0123), 1) == Approx(0.0123));
}

TEST_CASE("seconds have no unit, and counts fit") {
  CHECK(parse_seconds("--max-time", "0.3") == 0.3);
  for (const char* wrong : {"300ms", "1s", "0", "-1", "nan", "inf"})
    CHECK_THROWS_WITH(parse_seconds("--max-time", wrong), std::string("--max-time ") + wrong + ": want seconds above 0, without a unit: 1.5");
  CHECK(parse_count("--rows", "7", 0) == 7);
  for (const char* wrong : {"0", "-1", "1.5", "7x", "", "99999999999"})
    CHECK_THROWS_WITH(parse_count("--threads", wrong, 1, INT32_MAX), ContainsSubstring("want a whole number of at least 1"));
}
