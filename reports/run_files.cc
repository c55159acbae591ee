// SPDX-License-Identifier: Apache-2.0
#include "reports/run_files.h"

#include "reports/junit.h"
#include "reports/report_file.h"
#include "reports/summary.h"
#include "reports/text.h"

namespace smla {

void write_run_files(const std::string& folder, const RunFacts& facts) {
  const auto accuracy = rows_of_run<AccuracyRow>(folder, facts.run_id);
  const auto throughput = rows_of_run<ThroughputRow>(folder, facts.run_id);
  write_text_file(folder + "/summary.md", summary_markdown({.planned = facts.planned,
                                                            .accuracy = accuracy,
                                                            .throughput = throughput,
                                                            .unexpected = facts.unexpected,
                                                            .command = facts.command,
                                                            .wall_s = facts.wall_s,
                                                            .only_timed = facts.only_timed}));
  std::vector<JunitCase> cases = junit_cases(accuracy, facts.unexpected);
  const std::vector<JunitCase> timed = junit_cases(throughput);
  cases.insert(cases.end(), timed.begin(), timed.end());
  write_text_file(folder + "/junit.xml", junit_xml(cases));
}

}  // namespace smla
