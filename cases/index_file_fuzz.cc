// SPDX-License-Identifier: Apache-2.0
// Any bytes are an index file or one line of complaint.
#include "cases/index_file.h"
#include "cases/words.h"
#include "smla_fuzz.h"

using namespace smla;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const IndexFile file = parse_index_file({reinterpret_cast<const char*>(data), size}, "x");
    fuzz_require(file.positions.size() == static_cast<size_t>(file.rows * file.columns), "not its shape");
    statistics_of(file, 64);
  } catch (const UsageError& error) { fuzz_require_one_line(error.what()); }
  return 0;
}
