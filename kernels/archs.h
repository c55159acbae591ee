// SPDX-License-Identifier: Apache-2.0
// GPUs that need not be here: what `supports` may be asked about.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/api/smla_kernel.h"

namespace smla {

struct Arch {
  std::string_view name;  // sm_90
  int32_t cc;             // 90
  const char* card;       // whose figures these are
  int32_t sm_count;
  int64_t smem_optin_bytes, l2_bytes;
};
std::span<const Arch> archs();
/// Throws UsageError naming the nearest.
const Arch& find_arch(std::string_view name);
/// Fills the device's fields of a problem; an architecture without a row leaves all but device_cc at 0.
void describe_arch(int32_t cc, smla_problem& problem);

}  // namespace smla
