// SPDX-License-Identifier: Apache-2.0
// The roofs of a GPU, measured by kernels of the harness's own: rates of reading, copying, gathering and multiplying, and what a launch costs.
#pragma once
#include <vector>

#include "harness/peaks.h"

namespace smla {

/// In this process. Empty where there is no such GPU, or it fails; the matrix rate is left out where no own loop knows the instructions (sm_100).
std::vector<Peak> measure_gpu_peaks(int ordinal);

}  // namespace smla
