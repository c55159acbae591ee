// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels' rows of the registry.
#pragma once
#include <span>

#include "kernels/api/smla_kernel.h"

namespace smla::cuda {
std::span<const smla_kernel* const> kernels();
}
