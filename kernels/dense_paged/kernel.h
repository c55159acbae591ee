// SPDX-License-Identifier: Apache-2.0
// Dense paged decode on tensor cores: the baseline that sparse speed-ups are quoted against. The body is sparse_mma's, fed positions and a page
// table.
#pragma once
#include <cuda_runtime.h>

#include "kernels/common/job.h"

namespace smla {
extern const smla_kernel dense_paged_kernel;
}
