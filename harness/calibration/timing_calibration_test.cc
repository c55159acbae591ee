// SPDX-License-Identifier: Apache-2.0
#include "harness/calibration/timing_calibration.h"

#include <filesystem>
#include <random>

#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// Runs of a kernel of 100 us with 0.5 % noise a sample and `drift` from run to run.
std::vector<CalibrationLane> made_up(double drift) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<CalibrationLane> lanes;
  for (int run = 0; run < 12; ++run) {
    const double run_us = 100 * (1 + drift * normal(random));
    for (auto [delay, copy] : {std::pair{0.0, 0}, {0.0, 1}, {0.01, 0}, {0.05, 0}}) {
      CalibrationLane lane{"Card", "decode b=1 s_q=1 h_q=8 s_kv=256 topk=64", "k", 1, run, delay, copy, {}};
      for (int i = 0; i < 30; ++i) lane.time_us.push_back(run_us * (1 + delay) * (1 + 0.005 * normal(random)));
      lanes.push_back(std::move(lane));
    }
  }
  return lanes;
}
std::string cell(const Table& table, size_t row, const std::string& title) {
  const auto at = std::find(table.titles.begin(), table.titles.end(), title);
  REQUIRE(at != table.titles.end());
  return table.rows.at(row).at(static_cast<size_t>(at - table.titles.begin()));
}

}  // namespace

TEST_CASE("samples survive the file; what is no calibration is refused") {
  const auto lanes = made_up(0);
  const std::string path = "/tmp/smla_timing_calibration_test.csv";
  write_text_file(path, calibration_csv(lanes));
  const auto again = read_calibration(path);
  REQUIRE(again.size() == lanes.size());
  CHECK(again[5].run == lanes[5].run);
  CHECK(again[5].copy == lanes[5].copy);
  CHECK(again[5].time_us.size() == 30);
  CHECK(again[5].time_us[7] == Approx(lanes[5].time_us[7]));
  write_text_file(path, "a,b\n1,2\n");
  CHECK_THROWS_WITH(read_calibration(path), ContainsSubstring(":1: not a calibration's samples"));
  std::string bad = calibration_csv({lanes[0]});
  bad.replace(bad.rfind(',') + 1, bad.npos, "-3\n");
  write_text_file(path, bad);
  CHECK_THROWS_WITH(read_calibration(path), ContainsSubstring(":31: column time_us: \"-3\" is not above 0"));
  std::filesystem::remove(path);
}

TEST_CASE("equal kernels are not told apart, 5 % is seen, and drift between runs shows as false verdicts") {
  const Table quiet = aa_table(made_up(0), 20), drifting = aa_table(made_up(0.02), 20), delays = delay_table(made_up(0));
  REQUIRE(quiet.rows.size() == 2);
  CHECK(cell(quiet, 0, "comparisons") == "264");  // 24 lanes, without the 12 pairs of one run
  CHECK(cell(quiet, 1, "comparisons") == "12");
  CHECK(cell(quiet, 0, "faster") == "0");
  CHECK(cell(quiet, 0, "slower") == "0");
  CHECK(cell(quiet, 0, "gate_red") == "0");
  CHECK(cell(drifting, 0, "slower") != "0");  // the table can fail
  CHECK(cell(drifting, 1, "slower") == "0");  // lanes of one run drift together
  REQUIRE(delays.rows.size() == 4);
  CHECK(cell(delays, 0, "between") == "runs");
  CHECK(cell(delays, 3, "between") == "lanes of a run");
  CHECK(cell(delays, 0, "delay_pct") == "1");
  CHECK(cell(delays, 0, "gate_red") == "0");
  CHECK(cell(delays, 2, "slower") == cell(delays, 2, "comparisons"));
  CHECK(cell(delays, 3, "slower") == cell(delays, 3, "comparisons"));
  CHECK(cell(delays, 3, "gate_red_pct") == "100");
}
