// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "harness/worker/device.h"

namespace smla {

/// The machine's own memory; what the CPU kernels run on. Lives as long as the process.
Device& host_device();

/// Bytes that may still be allocated without swapping: MemAvailable, and what the control group leaves.
int64_t host_available_bytes();

}  // namespace smla
