// SPDX-License-Identifier: Apache-2.0
// What fuzz targets share. A target defines LLVMFuzzerTestOneInput; without libFuzzer the same source is a test that replays its corpus
// (fuzz_replay.cc).
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/// Ends the process so that both libFuzzer and the replay notice.
inline void fuzz_require(bool ok, const char* what, const std::string& about = "") {
  if (ok) return;
  std::fprintf(stderr, "fuzz: %s: %s\n", what, about.c_str());
  std::abort();
}

/// A user's mistake is told in one line that is not empty.
inline void fuzz_require_one_line(const std::string& message) {
  fuzz_require(!message.empty() && message.find('\n') == message.npos, "message is not one line", message);
}
