// SPDX-License-Identifier: Apache-2.0
// The committed baselines say nothing that cannot be: no time lies below what the same row calls a limit.
#include <filesystem>

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
