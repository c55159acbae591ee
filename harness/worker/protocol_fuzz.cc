// SPDX-License-Identifier: Apache-2.0
// Any text is a message or a ProtocolError; a message that decodes is the very line that encoding it gives.
#include "harness/worker/protocol.h"
#include "smla_fuzz.h"

/// The first byte chooses request or reply.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string line(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if ((data[0] & 1) != 0) {
      uint64_t number = 0;
      const smla::Request request = smla::decode_request(line, &number);
      fuzz_require(smla::encode(number, request) == line, "another request", line);
    } else {
      fuzz_require(smla::encode(smla::decode_reply(line)) == line, "another reply", line);
    }
  } catch (const smla::ProtocolError& error) { fuzz_require(error.what()[0] != '\0', "a mistake without text"); }
  return 0;
}
