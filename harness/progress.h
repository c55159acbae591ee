// SPDX-License-Identifier: Apache-2.0
// How far a run is, on stderr: a bar with the time left on a terminal, a line now and then elsewhere.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "harness/options.h"

namespace smla {

class Progress {
 public:
  Progress(ProgressKind kind, int64_t planned, std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  /// `done` more pairs; `now` names what runs next.
  void advance(int64_t done, const std::string& now);
  /// Removes the bar so that a line can be printed; the next advance draws it again.
  void clear();

 private:
  void draw();
  bool bar_ = false, lines_ = false, drawn_ = false;
  int64_t planned_, done_ = 0;
  std::string what_, now_;
  std::chrono::steady_clock::time_point start_, last_;
};

/// One line on stderr, "smla: TEXT". Never throws.
void tell(const std::string& text);

/// "1:05" or "2:03:04".
std::string clock_text(double seconds);

}  // namespace smla
