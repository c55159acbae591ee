// SPDX-License-Identifier: Apache-2.0
// Any text is a suite or a mistake told in one line that begins with its place; the cases of a suite are cases.
#include "cases/suite.h"
#include "smla_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  smla::Suite suite;
  try {
    suite = smla::parse_suite(text, "fuzz.toml");
  } catch (const smla::UsageError& error) {
    fuzz_require_one_line(error.what());
    fuzz_require(std::string(error.what()).starts_with("fuzz.toml"), "the mistake has no place", error.what());
    return 0;
  }
  for (const smla::SuiteCase& one : suite.cases) fuzz_require(smla::parse_line(smla::to_line(one.c)) == one.c, "not a case", smla::to_line(one.c));
  return 0;
}
