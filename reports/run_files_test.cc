// SPDX-License-Identifier: Apache-2.0
#include "reports/run_files.h"

#include <filesystem>

#include "reports/outcome.h"
#include "reports/report_file.h"
#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("the files of a run are made of its own rows") {
  char name[] = "/tmp/smla_run_files_test_XXXXXX";
  const std::string folder = ::mkdtemp(name);
  AccuracyRow row;
  row.c = parse_line("decode b=1 s_q=1 h_q=8 s_kv=256 topk=64");
  row.kernel = "k";
  row.run_id = "before";
  row.status = Status::fail;
  ReportWriter<AccuracyRow>(folder).append(row);
  row.run_id = "now";
  row.status = Status::pass;
  ReportWriter<AccuracyRow>(folder).append(row);

  RunFacts facts{.run_id = "now", .planned = 2, .command = "smla check \xFF", .wall_s = 1};
  write_run_files(folder, facts);
  CHECK(read_text_file(folder + "/summary.md").starts_with("# 1 / 2 passed: 0 red, 0 unsupported or skipped, 1 not run\n"));
  CHECK_THAT(read_text_file(folder + "/junit.xml"), ContainsSubstring("tests=\"1\" failures=\"0\""));

  facts.unexpected[pair_key(row)] = "expected unsupported";
  write_run_files(folder, facts);
  CHECK(read_text_file(folder + "/summary.md").starts_with("# 0 / 2 passed: 1 red"));
  CHECK_THAT(read_text_file(folder + "/junit.xml"), ContainsSubstring("<failure type=\"unexpected\" message=\"expected unsupported, got pass"));
  std::filesystem::remove_all(folder);
}
