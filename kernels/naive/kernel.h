// SPDX-License-Identifier: Apache-2.0
// The third opinion: one warp a (token, head), fp32 throughout, no tiles, no splits, no tensor cores.
#pragma once
#include "kernels/api/smla_kernel.h"

namespace smla {
extern const smla_kernel naive_kernel;
}
