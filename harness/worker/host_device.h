// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "harness/worker/device.h"

namespace smla {

/// The machine's own memory; what the CPU kernels run on. Lives as long as the process.
Device& host_device();

/// Bytes that may still be allocated without swapping: MemAvailable, and what the control group and RLIMIT_AS leave.
int64_t host_available_bytes();
/// Empty, or that `what` needs more: "the case's lists need N bytes, M are free". Nothing is allocated.
std::string too_large(double need_bytes, std::string_view what);
/// Of what make_inputs() makes in this process and once more in a worker.
std::string too_large(const Case& c);

}  // namespace smla
