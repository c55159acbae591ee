// SPDX-License-Identifier: Apache-2.0
// Defects that only a GPU kernel can have, or has in a form of its own.
#pragma once
#include <span>

#include "kernels/api/smla_kernel.h"

namespace smla::mutants {

/// The kernel that the defects are planted in, healthy.
const smla_kernel& gpu_base();
/// One planted defect each, in the table's order (gpu.cu).
std::span<const smla_kernel> gpu_kernels();

}  // namespace smla::mutants
