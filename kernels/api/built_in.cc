// SPDX-License-Identifier: Apache-2.0
// The built-in kernels as a library behind the door, for programs of others: what `--plugin` loads, and what ctypes can call.
#include <vector>

#include "kernels/registry.h"

extern "C" SMLA_EXPORT const smla_library* smla_get_library(void) {
  static const std::vector<const smla_kernel*> all = smla::kernels(smla::KernelGroup::built_in);
  static const smla_library library = {SMLA_ABI_VERSION, sizeof(smla_library), static_cast<int32_t>(all.size()), 0, all.data()};
  return &library;
}
