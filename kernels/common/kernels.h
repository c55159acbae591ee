// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels' rows of the registry.
#pragma once
#include <span>
#include <vector>

#include "kernels/api/smla_kernel.h"

namespace smla::cuda {
std::span<const smla_kernel* const> kernels();

/// Dynamic shared memory of each instance, by the name of its file: what ptxas cannot report.
struct DynamicShared {
  const char* instance;
  int bytes;
};
std::vector<DynamicShared> dynamic_shared();
}  // namespace smla::cuda
