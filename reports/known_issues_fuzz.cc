// SPDX-License-Identifier: Apache-2.0
// Any text is a list of known issues or a mistake told in one line that begins with its place.
#include "reports/known_issues.h"
#include "smla_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const smla::KnownIssue& issue : smla::parse_known_issues({reinterpret_cast<const char*>(data), size}, "fuzz.toml"))
      fuzz_require(!issue.kernel.empty() && !issue.reason.empty(), "an issue that says nothing");
  } catch (const smla::UsageError& error) {
    fuzz_require_one_line(error.what());
    fuzz_require(std::string(error.what()).starts_with("fuzz.toml:"), "the mistake has no place", error.what());
  }
  return 0;
}
