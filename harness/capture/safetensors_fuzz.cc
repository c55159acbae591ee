// SPDX-License-Identifier: Apache-2.0
// Any bytes are a safetensors file, every tensor inside of it, or one line of complaint.
#include "cases/words.h"
#include "harness/capture/safetensors.h"
#include "smla_fuzz.h"

using namespace smla;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    size_t bytes = 0;
    for (const SafeTensor& tensor : parse_safetensors({data, size}, "x").tensors) {
      fuzz_require(tensor.bytes.empty() || (tensor.bytes.data() >= data && tensor.bytes.data() + tensor.bytes.size() <= data + size), "outside");
      bytes += tensor.bytes.size();
    }
    fuzz_require(bytes + 8 <= size, "more bytes than there are");
  } catch (const UsageError& error) { fuzz_require_one_line(error.what()); }
  return 0;
}
