// SPDX-License-Identifier: Apache-2.0
// reports/data/healthy.csv, as smla_calibrate left it, against the limits in force: no healthy row may be flagged by what is limited today.
#include <set>
#include <string>
#include <vector>

#include "cases/words.h"
#include "reference/budget.h"
#include "reports/csv.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("the healthy rows on record are many, of every family and format, and within every limit") {
  const Csv csv = read_csv(SMLA_SOURCE_DIR "/reports/data/healthy.csv");
  const auto column = [&](const std::string& name) {
    const auto found = std::find(csv.header.begin(), csv.header.end(), name);
    REQUIRE(found != csv.header.end());
    return static_cast<size_t>(found - csv.header.begin());
  };
  const Limits limits;
  const std::pair<size_t, double> largest[] = {{column("exact_ratio"), 1},
                                               {column("z_max"), limits.z_max},
                                               {column("row_rms"), limits.row_rms},
                                               {column("row_rms_any"), 1},
                                               {column("row_rms_peaked"), 1},
                                               {column("row_rms_score"), 1},
                                               {column("pooled_rms"), limits.pooled_rms},
                                               {column("lse_ratio"), limits.lse_ratio}};
  int64_t rows = 0;
  std::set<std::string> families, formats;
  for (const auto& line : csv.rows) {
    const bool one_family = line[column("values")] != "all";
    families.insert(line[column("values")]);
    formats.insert(line[column("q_dtype")] + " " + line[column("kv_format")] + " " + line[column("scales")]);
    if (one_family) rows += std::stoll(line[column("rows")]);
    CAPTURE(line);
    CHECK(line[column("rows_flagged")] == "0");
    for (const auto& [at, limit] : largest) {
      CAPTURE(csv.header[at]);
      if (!line[at].empty()) CHECK(std::stod(line[at]) <= limit);
    }
    if (!one_family)  // a format's line has all its figures
      for (const char* name : {"z_max", "row_rms", "pooled_rms", "lse_ratio"}) CHECK(std::stod(line[column(name)]) > 0);
  }
  CHECK(rows >= 500000);
  CHECK(families.size() == std::size(Names<Values>::kAll) + 1);
  CHECK(formats.size() == 6);
}
