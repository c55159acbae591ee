// SPDX-License-Identifier: Apache-2.0
// The committed baselines say nothing that cannot be: no time lies below what the same row calls a limit, and equal rows have equal limits.
#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "reports/report_file.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("a baseline's times are above their roof and above the gather of their rows") {
  int folders = 0;
  for (const auto& folder : std::filesystem::directory_iterator(SMLA_BASELINES)) {
    const auto report = read_report<ThroughputRow>((folder.path() / "throughput.csv").string());
    CHECK_FALSE(report.rows.empty());
    ++folders;
    for (size_t i = 0; i < report.rows.size(); ++i) {
      const ThroughputRow& row = report.rows[i];
      INFO(report.at(i) << row.kernel << " " << to_line(row.c));
      CHECK(row.status == Status::pass);
      REQUIRE(row.time_us_median);
      REQUIRE(row.gather_floor_us);
      CHECK(*row.time_us_median > *row.gather_floor_us);
      if (row.roof_us) CHECK(*row.time_us_median > *row.roof_us);
    }
  }
  CHECK(folders > 0);
}

// Medians of the same gather, taken once for each kernel, agree within 6 %. One that was gathered the slow way lay 24 % above the others.
TEST_CASE("a baseline's floors of the same rows agree") {
  for (const auto& folder : std::filesystem::directory_iterator(SMLA_BASELINES)) {
    const auto report = read_report<ThroughputRow>((folder.path() / "throughput.csv").string());
    std::map<std::string, std::vector<double>> floors;
    for (const ThroughputRow& row : report.rows) {
      Case rows = row.c;
      rows.h_q = 1, rows.sm_scale = 1;  // nothing of what is gathered
      floors[to_line(rows) + " " + row.timing + " " + row.cache].push_back(row.gather_floor_us.value());
    }
    for (const auto& [rows, of_rows] : floors) {
      const auto [low, high] = std::minmax_element(of_rows.begin(), of_rows.end());
      INFO(folder.path() << ": " << rows << ": " << *low << " to " << *high << " us");
      CHECK(*high <= 1.1 * *low);
    }
  }
}
