// SPDX-License-Identifier: Apache-2.0
// Commands that are printed so that they can be pasted as they are, in the folder in which the program was started.
#pragma once
#include <string>

#include "harness/options.h"

namespace smla {

/// One shell word.
std::string shell_quote(const std::string& text);

/// The program as it was started: argv[0] of the process, one shell word.
std::string started_as();

/// Asks one question of a run again.
struct Rerun {
  std::string program = "smla", flags;  // flags: that matter to the answer, a leading space each
  /// `verb` with one kernel and one case; `more`: further flags, with leading spaces.
  std::string line(const std::string& verb, const std::string& kernel, const Case& c, const std::string& more = "") const;
};
Rerun rerun_of(const Options& options);

/// Those of a timed row beyond cache and timing.
std::string timing_flags(const Options& options);

/// The flags beyond the choice of cases and kernels on which the answers of a run rest: a run is resumed only by one that agrees in them.
std::string asked_flags(const Options& options);

}  // namespace smla
