// SPDX-License-Identifier: Apache-2.0
// What GPU is here, asked by a process of its own: the parent never initialises CUDA.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "harness/cuda/cuda_device.h"
#include "harness/peaks.h"

namespace smla {

/// Starts `smla worker --gpu-info=ORDINAL` and reads its answer. Empty, with the reason in `why`, where there is no such GPU.
std::optional<GpuInfo> probe_gpu(int ordinal, std::string& why);

/// That process: one `key value` a line on stdout; `why REASON` alone where there is none.
int print_gpu_info(int ordinal);

/// The same for what it can do at best: `smla worker --gpu-peaks=ORDINAL`. Empty where that fails.
std::vector<Peak> probe_gpu_peaks(int ordinal);
int print_gpu_peaks(int ordinal);

}  // namespace smla
