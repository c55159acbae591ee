// SPDX-License-Identifier: Apache-2.0
#include "reports/junit.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// What an XML parser that is not ours makes of it: one line an element, attributes sorted.
std::string parsed(const std::string& xml) {
  char name[] = "/tmp/smla_junit_test_XXXXXX";
  ::close(::mkstemp(name));
  write_text_file(name, xml);
  const std::string command = std::string(
                                  "python3 -c \"import sys,xml.etree.ElementTree as E\nfor e in E.parse(sys.argv[1]).iter():"
                                  "\n print(e.tag, sorted(e.items()), repr((e.text or '').strip()))\" ") +
                              name + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char block[4096];
  while (size_t n = std::fread(block, 1, sizeof block, pipe)) text.append(block, n);
  CHECK(::pclose(pipe) == 0);
  ::unlink(name);
  return text;
}

AccuracyRow accuracy(Status status, const char* kernel, Tensor tensor = Tensor::out) {
  AccuracyRow row;
  row.c = parse_line("decode b=1 s_q=1 h_q=8 s_kv=256 topk=64 seed=3");
  row.kernel = kernel;
  row.tensor = tensor;
  row.status = status;
  row.z_max = 3.25;
  row.n_bad = 0;
  row.kernel_ms = 2;
  row.repro = "smla check --case 'x' --kernel " + row.kernel;
  if (status != Status::pass) row.detail = "why <it> & \"that\"";
  return row;
}

}  // namespace

TEST_CASE("rows become test cases: a property for each number, the reproducer in the failure") {
  const std::vector<AccuracyRow> rows{accuracy(Status::pass, "good"), accuracy(Status::pass, "good", Tensor::lse), accuracy(Status::fail, "bad"),
                                      accuracy(Status::crash, "bad", Tensor::lse), accuracy(Status::unsupported, "other")};
  const std::string text = parsed(junit_xml(junit_cases(rows)));
  CHECK_THAT(text, ContainsSubstring(
                       "testsuites [('errors', '1'), ('failures', '1'), ('name', 'smla'), ('skipped', '1'), ('tests', '5'), ('time', '0.006000')]"));
  CHECK_THAT(text, ContainsSubstring("testsuite [('errors', '1'), ('failures', '1'), ('name', 'check bad'), ('skipped', '0'), ('tests', '2')"));
  CHECK_THAT(text, ContainsSubstring("('name', 'decode b=1 s_q=1 h_q=8 s_kv=256 topk=64 seed=3 [lse]')"));
  CHECK_THAT(text, ContainsSubstring("property [('name', 'z_max'), ('value', '3.25')]"));
  CHECK_THAT(text, ContainsSubstring("property [('name', 'n_bad'), ('value', '0')]"));
  CHECK_THAT(text, ContainsSubstring("failure [('message', 'why <it> & \"that\"'), ('type', 'fail')]"));
  CHECK_THAT(text, ContainsSubstring("smla check --case \\'x\\' --kernel bad"));
  CHECK_THAT(text, ContainsSubstring("error [('message', 'why <it> & \"that\"'), ('type', 'crash')]"));
  CHECK_THAT(text, ContainsSubstring("skipped [('message', 'why <it> & \"that\"')]"));
  CHECK_THAT(text, !ContainsSubstring("'repro'"));
}

TEST_CASE("every status has its place, and throughput rows have properties too") {
  using Ending = JunitCase::Ending;
  const std::pair<Status, Ending> expected[] = {{Status::pass, Ending::passed},
                                                {Status::fail, Ending::failure},
                                                {Status::mistrusted, Ending::failure},
                                                {Status::crash, Ending::error},
                                                {Status::timeout, Ending::error},
                                                {Status::oom, Ending::error},
                                                {Status::impossible_fast, Ending::failure},
                                                {Status::unsupported, Ending::skipped},
                                                {Status::skipped, Ending::skipped},
                                                {Status::invalid, Ending::error}};
  REQUIRE(std::size(expected) == std::size(Names<Status>::kAll));
  for (const auto& [status, ending] : expected) {
    const AccuracyRow row = accuracy(status, "k");
    CHECK(junit_cases(std::span(&row, 1))[0].ending == ending);
  }
  ThroughputRow row;
  row.kernel = "k";
  row.timing = "event";
  row.cache = "cold";
  row.time_us_median = 250;
  const auto cases = junit_cases(std::span<const ThroughputRow>(&row, 1));
  REQUIRE(cases.size() == 1);
  CHECK(cases[0].time_s == 250e-6);
  CHECK_THAT(cases[0].name, ContainsSubstring("[event cold]"));
  CHECK(std::count(cases[0].properties.begin(), cases[0].properties.end(), std::pair<std::string, std::string>("time_us_median", "250")) == 1);
}

TEST_CASE("whatever a kernel printed, the document parses") {
  AccuracyRow row = accuracy(Status::crash, "k");
  for (int c = 1; c < 256; ++c) row.detail += static_cast<char>(c);
  row.detail += "]]> <!-- &#0; \xFF\xFE";
  row.kernel = "k<\x01>";
  const std::string text = parsed(junit_xml(junit_cases(std::span<const AccuracyRow>(&row, 1))));
  CHECK_THAT(text, ContainsSubstring("error [("));
  CHECK_THAT(parsed(junit_xml({})), ContainsSubstring("('tests', '0')"));
}
