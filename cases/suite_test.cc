// SPDX-License-Identifier: Apache-2.0
#include "cases/suite.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "cases/inputs.h"
#include "smla_catch.h"

using namespace smla;

namespace {

std::string error_of(const std::string& text) {
  try {
    parse_suite(text, "my.toml");
  } catch (const UsageError& error) { return error.what(); }
  return "(none)";
}

std::vector<std::string> lines_of(const Suite& suite) {
  std::vector<std::string> lines;
  for (const SuiteCase& item : suite.cases) lines.push_back(to_line(item.c));
  return lines;
}

double work_of(const Case& c) { return static_cast<double>(c.tokens()) * c.h_q * c.topk; }

}  // namespace

TEST_CASE("a group is the product of its axes without what it skips") {
  const Suite suite = parse_suite(R"([[group]]
name = "g"
why = "because"
tags = ["gpu", "time"]
expect = "unsupported:fast_*"
base = "decode model=glm-5 topk=64"
axes = { tp = [8, 4], b = [1, 8], pattern = ["sorted", "scattered"] }
skip = ["b=8 tp=4", "pattern=sorted tp=4"]
[[group]]
name = "single"
why = "why not"
base = "prefill b=2"
)",
                                  "dir/mine.toml");
  CHECK(suite.name == "mine");
  CHECK(lines_of(suite) == std::vector<std::string>{"decode b=1 s_q=1 h_q=8 s_kv=4096 topk=64 pattern=sorted",
                                                    "decode b=1 s_q=1 h_q=8 s_kv=4096 topk=64", "decode b=1 s_q=1 h_q=16 s_kv=4096 topk=64",
                                                    "decode b=8 s_q=1 h_q=8 s_kv=4096 topk=64 pattern=sorted",
                                                    "decode b=8 s_q=1 h_q=8 s_kv=4096 topk=64", "prefill b=2 s_q=1 h_q=8 s_kv=4096 topk=2048"});
  CHECK(suite.cases[0].group == "g");
  CHECK(suite.cases[0].why == "because");
  CHECK(suite.cases[0].tags == std::vector<std::string>{"gpu", "time"});
  CHECK(suite.cases[0].expect == "unsupported:fast_*");
  CHECK(suite.cases[5].expect == "pass");
  CHECK(suite.cases[5].tags.empty());
}

TEST_CASE("errors name file, line, key and the nearest name") {
  const std::string head = "[[group]]\nname = \"g\"\nwhy = \"w\"\n";
  CHECK_THAT(error_of("[[group]]\nname = \n"), ContainsSubstring("my.toml:2: "));
  CHECK(error_of("[[group]]\nname = \"gr\u00fc\"\n") == "my.toml:2: a character beyond ASCII");
  CHECK(error_of("") == "my.toml: has no [[group]]");
  CHECK(error_of("[[grupo]]\n") == "my.toml:1: unknown key 'grupo'; a suite is a list of [[group]]");
  CHECK(error_of("group = 3\n") == "my.toml:1: group: is not an array");
  CHECK(error_of(head + "base = \"decode\"\naxis = {}\n") == "my.toml:5: unknown key 'axis'; did you mean 'axes'?");
  CHECK(error_of("[[group]]\nwhy = \"w\"\nbase = \"decode\"\n") == "my.toml:1: group without a name");
  CHECK(error_of("[[group]]\nname = \"g\"\nbase = \"decode\"\n") == "my.toml:1: group 'g' does not say why");
  CHECK(error_of(head) == "my.toml:1: group 'g' has no base");
  CHECK(error_of(head + "base = 5\n") == "my.toml:4: base: is not a string");
  CHECK(error_of(head + "base = \"decode\"\ntags = \"gpu\"\n") == "my.toml:5: tags: is not an array");
  CHECK(error_of(head + "base = \"decode\"\naxes = { b = 5 }\n") == "my.toml:5: b: is not an array");
  CHECK(error_of(head + "base = \"decode\"\naxes = { b = [] }\n") == "my.toml:5: axes.b: has no values");
  CHECK(error_of(head + "base = \"decode\"\naxes = { b = [true] }\n") == "my.toml:5: axes.b: values are strings and numbers");
  CHECK(error_of(head + "base = \"decode b=1\"\naxes = { b = [1] }\n") == "my.toml:1: group 'g': b stands in base and in axes");
  CHECK(error_of(head + "base = \"decode\"\naxes = { topkk = [1] }\n") ==
        "my.toml:1: group 'g': unknown key 'topkk'; did you mean 'topk'? (in 'decode topkk=1')");
  std::string thousand = "0";
  for (int i = 1; i < 1001; ++i) thousand += "," + std::to_string(i);
  CHECK(error_of(head + "base = \"decode\"\naxes = { seed = [" + thousand + "], needle0 = [" + thousand + "] }\n") ==
        "my.toml:1: group 'g': the axes span 1002001 cases, more than a million");
  CHECK(error_of(head + "base = \"decode\"\ntags = [\"gpu\", \"tiem\"]\n") == "my.toml:5: tags: unknown tag 'tiem'; did you mean 'time'?");
  const auto expecting = [&](const std::string& text) { return error_of(head + "base = \"decode\"\nexpect = \"" + text + "\"\n"); };
  CHECK(expecting("mistrustd") == "my.toml:5: expect: unknown word 'mistrustd'; did you mean 'mistrusted'?");
  CHECK(expecting("fail") == "my.toml:5: expect: unknown word 'fail'; known: pass, mistrusted, unsupported");
  CHECK(expecting("unsuported:cpu_*") == "my.toml:5: expect: unknown word 'unsuported'; did you mean 'unsupported'?");
  for (const char* text : {"unsupported", "unsupported:", "pass:cpu_naive"})
    CHECK(expecting(text) == "my.toml:5: expect: '" + std::string(text) + "'; want pass, mistrusted or unsupported:KERNEL");
  CHECK(error_of(head + "base = \"decode b=1\"\nskip = [\"b=2\"]\n") == "my.toml:5: skip 'b=2': leaves nothing out");
  CHECK(error_of(head + "base = \"decode b=1\"\nskip = [\"topk=2\"]\n") == "my.toml:5: skip 'topk=2': neither base nor axes say topk");
  CHECK(error_of(head + "base = \"decode\"\n" + "[[group]]\nname = \"h\"\nwhy = \"w\"\nbase = \"decode b=1\"\n") ==
        "my.toml: groups 'g' and 'h' hold the same case: decode b=1 s_q=1 h_q=8 s_kv=4096 topk=2048");
}

TEST_CASE("files and names") {
  CHECK_THROWS_WITH(load_suite("quik"), "suite: unknown value 'quik'; did you mean 'quick'?");
  CHECK_THROWS_WITH(load_suite_file("/nonexistent/x.toml"), "/nonexistent/x.toml: No such file or directory");
  CHECK_THROWS_WITH(load_suite_file("/tmp"), "/tmp: is a directory");
  const std::string path = std::filesystem::temp_directory_path() / ("smla_suite_test_" + std::to_string(getpid()) + ".toml");
  std::ofstream(path) << "[[group]]\nname='g'\nwhy='w'\nbase='decode'\n";
  CHECK(load_suite_file(path).cases.size() == 1);
  std::filesystem::remove(path);
}

TEST_CASE("every case of every built-in suite reads back and can be made") {
  for (const std::string& name : suite_names())
    for (const SuiteCase& item : load_suite(name).cases) {
      INFO(to_line(item.c));
      REQUIRE(parse_line(to_line(item.c)) == item.c);
      REQUIRE(parse_line(to_full_line(item.c)) == item.c);
      if (work_of(item.c) <= 1 << 18) REQUIRE(make_inputs(item.c).tokens() == item.c.tokens());
    }
}

TEST_CASE("quick: every pattern, family and format, head counts, the models, and small") {
  const Suite quick = load_suite("quick");
  std::set<Pattern> patterns;
  std::set<std::pair<Values, KvFormat>> values;
  std::set<int32_t> heads, page_sizes;
  std::map<KvFormat, int> coverage;
  double work = 0;
  for (const SuiteCase& item : quick.cases) {
    const Case& c = item.c;
    patterns.insert(c.pattern), values.insert({c.values, c.kv_format}), heads.insert(c.h_q), page_sizes.insert(c.page_size);
    coverage[c.kv_format] +=
        c.values == Values::needle && c.topk == 512 && c.tokens() * c.h_q == 512 && make_inputs(c).valid_keys == c.tokens() * 512;
    work += work_of(c);
  }
  CHECK(patterns.size() == std::size(Names<Pattern>::kAll) - 1);  // all but file
  for (size_t v = 0; v < std::size(Names<Values>::kAll); ++v) {
    INFO(Names<Values>::kAll[v]);
    CHECK(values.count({static_cast<Values>(v), KvFormat::bf16}) == 1);
    CHECK(values.count({static_cast<Values>(v), KvFormat::fp8_656}) == 1);
  }
  for (const int32_t h_q : {1, 5, 8, 12, 16, 32, 64, 96, 128}) CHECK(heads.count(h_q) == 1);
  for (const int32_t page : {1, 2, 16, 32, 53, 61, 64, 69, 256}) CHECK(page_sizes.count(page) == 1);
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp16, KvFormat::fp8_656}) CHECK(coverage[format] == 1);
  CHECK(work < 1 << 22);
  const std::vector<std::string> lines = lines_of(quick);
  CHECK(std::count(lines.begin(), lines.end(), "decode b=1 s_q=1 h_q=8 s_kv=32768 topk=2048 kv_format=fp8_656 pattern=sink_and_recent") == 1);
  CHECK(std::count(lines.begin(), lines.end(), "decode b=1 s_q=1 h_q=128 s_kv=8192 topk=2048 kv_format=fp8_656 sm_scale=0.07216878") == 1);
}

TEST_CASE("throughput holds the models' shapes, and stress the ends of counters") {
  const auto has = [](const std::vector<std::string>& lines, const std::string& line) { return std::count(lines.begin(), lines.end(), line) == 1; };
  const std::vector<std::string> throughput = lines_of(load_suite("throughput"));
  for (const std::string heads : {"8", "16", "64"})
    for (const std::string b : {"1", "8", "32", "128"})
      CHECK(has(throughput, "decode b=" + b + " s_q=1 h_q=" + heads + " s_kv=32768 topk=2048 kv_format=fp8_656 pattern=sink_and_recent"));
  for (const std::string heads : {"16", "128"}) {
    CHECK(has(throughput, "decode b=128 s_q=1 h_q=" + heads + " s_kv=32768 topk=2048 sm_scale=0.07216878 pattern=sink_and_recent"));
    CHECK(has(throughput, "prefill b=1 s_q=4096 h_q=" + heads + " s_kv=32768 topk=2048 sm_scale=0.07216878 pattern=sink_and_recent"));
  }
  double most_rows = 0, most_requests = 0, cpu_work = 0;
  for (const SuiteCase& item : load_suite("stress").cases) {
    most_rows = std::max(most_rows, static_cast<double>(item.c.tokens()));
    most_requests = std::max(most_requests, static_cast<double>(item.c.b));
    if (item.tags.empty()) cpu_work += work_of(item.c);
  }
  CHECK(most_rows > 65535);
  CHECK(most_requests > 65535);
  CHECK(cpu_work < 1 << 25);
}
