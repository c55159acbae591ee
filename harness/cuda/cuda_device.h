// SPDX-License-Identifier: Apache-2.0
// The GPU as the engine sees it. Includes no CUDA header: a build without CUDA links open_cuda_device() from no_cuda.cc, which says so.
#pragma once
#include <cstdint>
#include <string>

#include "harness/worker/device.h"

namespace smla {

/// What is here, for the reports. Empty or 0: unknown.
struct GpuInfo {
  std::string name, uuid, driver_version, cuda_version, ecc;  // ecc: on | off
  int32_t cc = 0, sm_count = 0;                               // 90 for sm_90
  int64_t memory_bytes = 0, l2_bytes = 0, smem_optin_bytes = 0;
  double power_limit_w = 0;
};

/// The device of this ordinal, opened on first use and kept until the process ends; null, with the reason in `why`, where there is none
/// (no driver, one older than the runtime, no such ordinal, a build without CUDA).
Device* open_cuda_device(int ordinal, std::string& why);

/// Asks without opening a context. false, with the reason in `why`, where there is no such GPU.
bool describe_gpu(int ordinal, GpuInfo& info, std::string& why);

}  // namespace smla
