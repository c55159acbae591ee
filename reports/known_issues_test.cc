// SPDX-License-Identifier: Apache-2.0
#include "reports/known_issues.h"

#include "smla_catch.h"

using namespace smla;

namespace {

void refused(const char* text, const std::string& why) {
  INFO(text);
  CHECK_THROWS_WITH(parse_known_issues(text, "known.toml"), ContainsSubstring(why));
  CHECK_THROWS_AS(parse_known_issues(text, "known.toml"), UsageError);
}

}  // namespace

TEST_CASE("an issue covers kernel, case and arch") {
  const auto issues = parse_known_issues(R"(
[[issue]]
kernel = "sparse_*"
case = "topk=64 .*pattern=padded"
arch = "sm_9?"
reason = "tail mask"
link = "https://example.org/1"

[[issue]]
kernel = "cpu_naive"
reason = "slow"
)",
                                         "known.toml");
  REQUIRE(issues.size() == 2);
  CHECK(issues[0].origin == "known.toml:2");
  CHECK(issues[1].origin == "known.toml:9");
  CHECK(issues[0].link == "https://example.org/1");
  Common row;
  row.c = parse_line("decode b=1 s_q=1 h_q=8 s_kv=256 topk=64 pattern=padded");
  row.kernel = "sparse_mma";
  row.arch = "sm_90";
  CHECK(issues[0].matches(row));
  row.arch = "sm_120";
  CHECK_FALSE(issues[0].matches(row));
  row.arch = "sm_90";
  row.kernel = "dense_mma";
  CHECK_FALSE(issues[0].matches(row));
  row.kernel = "cpu_naive";
  CHECK(issues[1].matches(row));  // case and arch left out: all
  row.kernel = "sparse_mma";
  row.c = parse_line("decode b=1 s_q=1 h_q=8 s_kv=256 topk=64");
  CHECK_FALSE(issues[0].matches(row));
  CHECK(parse_known_issues("", "known.toml").empty());
}

TEST_CASE("mistakes are named with file and line") {
  refused("[[issue]]\nkernel = \"k\"\nreason = \"r\"\nkernle = 1\n", "known.toml:4: unknown key \"kernle\" of an issue; did you mean \"kernel\"?");
  refused("[[issue]]\nkernel = \"k\"\n", "known.toml:1: an issue needs a reason");
  refused("[[issue]]\nreason = \"r\"\n", "known.toml:1: an issue needs a kernel");
  refused("[[issue]]\nkernel = 3\nreason = \"r\"\n", "known.toml:2: kernel must be a string");
  refused("[[issue]]\nkernel = \"k\"\nreason = \"r\"\ncase = \"(\"\n", "is no regular expression");
  refused("[[issue]]\nkernel = \"k\"\nreason = \"r\"\ncase = '\\44444444444444444444'\n", "at most four digits");
  refused(("[[issue]]\nkernel = \"k\"\nreason = \"r\"\ncase = '" + std::string(2000, '(') + "'\n").c_str(), "2000 characters are too long");
  refused("[[issues]]\nkernel = \"k\"\n", "unknown key \"issues\"");
  refused("[issue]\nkernel = \"k\"\n", "write [[issue]]");
  refused("[[issue]]\nkernel = \"\xC3\xA9\"\n", "known.toml:2: a character beyond ASCII");
  refused("[[issue]\n", "known.toml:1: ");
  CHECK_THROWS_WITH(read_known_issues("/nowhere/known.toml"), ContainsSubstring("cannot read /nowhere/known.toml"));
}
