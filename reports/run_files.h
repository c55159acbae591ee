// SPDX-License-Identifier: Apache-2.0
// The files that a run writes once it is over: summary.md and junit.xml, from the rows that stand in its CSV files.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace smla {

struct RunFacts {
  std::string run_id;                             // rows of other runs in the same files are left out
  int64_t planned = 0;                            // pairs of case and kernel
  std::map<std::string, std::string> unexpected;  // pair_key -> "expected ...": red whatever the status
  std::string command;
  double wall_s = 0;
  bool only_timed = false;  // `planned` counts rows that were to be timed
};

/// Replaces both files in `folder`. A CSV file that is not there is an empty one. Throws UsageError: a CSV that cannot be read, a file that
/// cannot be written.
void write_run_files(const std::string& folder, const RunFacts& facts);

}  // namespace smla
