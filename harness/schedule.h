// SPDX-License-Identifier: Apache-2.0
// In which order the runs of one case come, and how many of their answers wait for the oracle at a time. A pure function.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cases/inputs.h"

namespace smla {

/// One run of one kernel, as far as it matters here.
struct ScheduledRun {
  size_t kernel = 0;
  std::string inputs;         // runs of the same inputs say the same; base runs: empty
  bool rows_needed = true;    // the oracle, or a relation, looks at its rows
  bool held_to_base = false;  // its rows, against the base run's

  bool base() const { return inputs.empty(); }
};

/// Answers wait for the oracle, which is asked once for all of them. Where it is not asked, and they would not all fit, each is judged as it comes.
/// Then base runs alone are kept, if something is held against them: those of all kernels or, where they would not fit either, of one after another.
struct Schedule {
  std::vector<size_t> order;  // of the runs
  bool waits = true, keeps_base = false, one_after_another = false;
  size_t chunk = 0;        // tokens
  int64_t held_bytes = 0;  // of their answers, at most
};
/// `tokens` of the case `in` are judged. A chunk is one token at least, however large it is.
Schedule schedule(const std::vector<ScheduledRun>& runs, const Inputs& in, int64_t tokens);

}  // namespace smla
