// SPDX-License-Identifier: Apache-2.0
// The line protocol between Worker and its process, as pure functions. A message is one line: verb, then key=value in fixed order.
// Text stands in '...' with \\ \' \n \xHH; floats are C's %a; token lists are ranges (0-15|20). Only the canonical form is accepted:
// decode(line) succeeds exactly when encode of the result gives the line back, so unknown, repeated, missing and reordered keys are all errors.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "harness/worker.h"

namespace smla {

/// A line that is not a message. The text says where and why.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr size_t kMaxLineBytes = size_t{64} << 20;

struct SupportsRequest {
  Case c;
  std::string kernel;
  int arch_cc = 0;
};

/// What the worker is asked. Deadlines are the parent's and are not sent.
using Request = std::variant<SupportsRequest, RunRequest, TimeRequest>;

/// The first message of a worker, unasked: what it can run.
struct Ready {
  std::vector<KernelInfo> kernels;
};
/// The request could not be served: a contradictory case, an unknown kernel, a library that cannot be loaded. The caller's mistake, not the kernel's.
struct Refused {
  std::string text;
};
/// What the worker answers. A RunReply's out and lse do not travel in the line, but in the shared memory of the judged rows.
struct Reply {
  uint64_t number = 0;  // of the request; 0 = Ready
  bool retire = false;  // the worker is not fit for another request (leak, stray children, lost descriptors): replace it
  std::variant<Ready, Refused, RunReply, TimeReply> body;
};

std::string encode(uint64_t number, const Request& request);
std::string encode(const Reply& reply);
/// Inverse of encode; without the final line feed. Throw ProtocolError.
Request decode_request(std::string_view line, uint64_t* number);
Reply decode_reply(std::string_view line);

}  // namespace smla
