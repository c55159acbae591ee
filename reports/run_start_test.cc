// SPDX-License-Identifier: Apache-2.0
#include "reports/run_start.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cases/words.h"
#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("a run is begun, read back, and told from every other") {
  char name[] = "/tmp/smla_run_start_test_XXXXXX";
  const std::string folder = ::mkdtemp(name);
  CHECK_THROWS_WITH(read_run_start(folder), ContainsSubstring("no run was begun in " + folder));
  for (const char* old : {"/summary.md", "/junit.xml", "/benchmark.json"}) write_text_file(folder + old, "of an earlier run");
  RunStart start{"r", "2026-01-02T03:04:05Z", "smla check 'x'", 2, {"run", "0.1.0 abc", "", "quick", "3 cases", "a|b", "cpu", "--checks all"}};
  begin_run(folder, start);
  CHECK(read_run_start(folder) == start);
  for (const char* old : {"/summary.md", "/junit.xml", "/benchmark.json"}) CHECK_FALSE(std::filesystem::exists(folder + old));

  start.identity.verb = "check";  // times nothing
  write_text_file(folder + "/benchmark.json", "of an earlier run");
  begin_run(folder, start);
  CHECK(std::filesystem::exists(folder + "/benchmark.json"));

  CHECK(difference(start.identity, start.identity).empty());
  for (std::string RunIdentity::*member : {&RunIdentity::verb, &RunIdentity::binary, &RunIdentity::plugin, &RunIdentity::suite, &RunIdentity::cases,
                                           &RunIdentity::kernels, &RunIdentity::device, &RunIdentity::flags}) {
    RunIdentity other = start.identity;
    other.*member += "!";
    CHECK_THAT(difference(start.identity, other), ContainsSubstring("! now"));
  }
  RunIdentity other = start.identity;
  other.plugin = std::string(300, 'p');
  CHECK(difference(start.identity, other) == "another plugin: none then, " + std::string(100, 'p') + "... now");

  for (const char* bad : {"", "{", "[]", "{\"run_id\": \"r\"}", "{\"run_id\": 3}"}) {
    write_text_file(folder + "/env.json", bad);
    CHECK_THROWS_AS(read_run_start(folder), UsageError);
  }
  std::filesystem::remove_all(folder);
}
