// SPDX-License-Identifier: Apache-2.0
// How the program ends. Before anything runs: 3, then 5, then 4. Afterwards: 6, 1, 2; 77 only if nothing is red.
#pragma once
#include <stdexcept>
#include <string>

namespace smla {

enum ExitStatus : int {
  kAllGreen = 0,
  kCorrectnessRed = 1,
  kThroughputRed = 2,
  kUsage = 3,  // bad flag, key, value or file (UsageError)
  kNothingMatched = 4,
  kNothingCouldStart = 5,  // no driver, no memory, no worker; the message says what to do
  kSelftestFailed = 6,
  kNoPass = 77,  // nothing red, and nothing passed either
};

/// Thrown before anything runs; the message is the one line that the user sees.
struct NothingMatched : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct CannotStart : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace smla
