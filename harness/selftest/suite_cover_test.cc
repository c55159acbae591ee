// SPDX-License-Identifier: Apache-2.0
#include "harness/selftest/suite_cover.h"

#include "smla_catch.h"

using namespace smla;

namespace {
std::set<std::string> of(const char* line) { return axis_values(parse_line(line)); }
}  // namespace

TEST_CASE("a cover takes what adds most, the cheaper of equals, and what is wanted before all") {
  const std::vector<Coverable> cases = {{{"a", "b"}, 1}, {{"a", "b", "c"}, 9}, {{"c", "d"}, 5}, {{"c", "d"}, 2}, {{}, 1}};
  CHECK(greedy_cover(cases) == std::vector<size_t>{0, 3, 0, 1, 0});
  std::vector<Coverable> wanted = cases;
  wanted[0].wanted = true;
  CHECK(greedy_cover(wanted) == std::vector<size_t>{2, 0, 0, 2, 0});
  CHECK(greedy_cover({}).empty());
}

TEST_CASE("axes: sizes and seeds are none; families count in each format, patterns in bf16 and in FP8") {
  CHECK(of("decode b=1 s_q=1 h_q=8 s_kv=100 topk=10 pattern=padded") == of("decode b=9 s_q=2 h_q=8 s_kv=300 topk=64 pattern=padded seed=4"));
  CHECK(of("decode b=1 s_q=1 h_q=8 s_kv=100 topk=10") != of("decode b=1 s_q=1 h_q=16 s_kv=100 topk=10"));
  const std::set<std::string> fp8 = of("decode b=1 s_q=1 h_q=8 s_kv=100 topk=10 pattern=padded kv_format=fp8_656");
  CHECK(fp8.count("padded fp8_656") == 1);
  CHECK(fp8.count("gaussian fp8_656") == 1);
}
