// SPDX-License-Identifier: Apache-2.0
// How often compare and gate are wrong, and what they see: raw samples of one kernel, with and without an artificial delay, taken again and again.
#pragma once
#include <string>
#include <vector>

#include "cases/case.h"
#include "reports/table.h"

namespace smla {

/// Samples of one lane of one run. Lanes of a run were interleaved; runs have their own allocations; processes their own contexts.
struct CalibrationLane {
  std::string device, case_line, kernel;
  int process = 0, run = 0;
  double delay_frac = 0;  // artificial, of the undelayed median; 0: the kernel itself
  int copy = 0;           // of two undelayed lanes of a run
  std::vector<double> time_us;
};

/// One line a sample, and back. Throws UsageError.
std::string calibration_csv(const std::vector<CalibrationLane>& lanes);
std::vector<CalibrationLane> read_calibration(const std::string& path);

/// A/A: every pair of undelayed lanes of the same case, of different runs and of the same one; and sweeps of 20 such pairs, drawn from all of them
/// with a seed, in which one false verdict counts. Verdicts of `compare` and of `gate`, at their default margins (1 % and 3 %).
Table aa_table(const std::vector<CalibrationLane>& lanes, int sweeps = 200);
/// How often each delay is called slower, and red: every undelayed lane against every delayed one of another run, and of the same one.
Table delay_table(const std::vector<CalibrationLane>& lanes);

}  // namespace smla
