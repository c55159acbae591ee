// SPDX-License-Identifier: Apache-2.0
#include "harness/final_reports.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reports/env.h"
#include "reports/junit.h"
#include "reports/report_file.h"
#include "reports/summary.h"

namespace smla {
namespace {

template <class Row>
std::vector<Row> rows_of_run(const Job& job) {
  const std::string path = fmt::format("{}/{}", job.folder, file_name<Row>());
  if (!std::filesystem::exists(path)) return {};
  std::vector<Row> rows = read_report<Row>(path).rows;
  std::erase_if(rows, [&](const Row& row) { return row.run_id != job.run.run_id; });
  return rows;
}

/// Whole or not at all.
void write_file(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file.good()) std::filesystem::rename(fresh, path, error);
  if (!file.good() || error) {
    std::filesystem::remove(fresh, error);
    throw UsageError(fmt::format("cannot write {}", path));
  }
}

}  // namespace

void write_final_reports(const Job& job, const SweepResult& checked, double wall_s) {
  const std::vector<AccuracyRow> accuracy = rows_of_run<AccuracyRow>(job);
  const std::vector<ThroughputRow> throughput = rows_of_run<ThroughputRow>(job);

  std::vector<JunitCase> cases = junit_cases(accuracy);
  for (JunitCase& timed : junit_cases(throughput)) cases.push_back(std::move(timed));
  write_file(job.folder + "/junit.xml", junit_xml(cases));

  SummaryInput summary;
  summary.planned = checked.tally.planned;
  summary.accuracy = accuracy;
  summary.throughput = throughput;
  summary.unexpected = checked.unexpected;
  summary.command = job.options.command;
  summary.wall_s = wall_s;
  write_file(job.folder + "/summary.md", summary_markdown(summary));

  nlohmann::ordered_json env = environment();
  env["run_id"] = job.run.run_id;
  env["command"] = job.options.command;
  write_file(job.folder + "/env.json", env.dump(2) + "\n");
}

}  // namespace smla
