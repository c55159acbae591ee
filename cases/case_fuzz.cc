// SPDX-License-Identifier: Apache-2.0
// Any text is a case line or a mistake told in one line; a line that parses prints itself, short and in full, to the same case.
#include "cases/case.h"
#include "smla_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  smla::Case c;
  try {
    c = smla::parse_line(text);
  } catch (const smla::UsageError& error) {
    fuzz_require_one_line(error.what());
    return 0;
  }
  const std::string line = smla::to_line(c), full = smla::to_full_line(c);
  fuzz_require(smla::parse_line(line) == c, "the line is another case", line);
  fuzz_require(smla::parse_line(full) == c, "the full line is another case", full);
  fuzz_require(smla::to_line(smla::parse_line(line)) == line, "the line does not print itself", line);
  for (const std::string& key : smla::case_keys()) fuzz_require(!smla::case_value(c, key).empty(), "a key without a value", key);
  return 0;
}
