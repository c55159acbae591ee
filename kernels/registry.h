// SPDX-License-Identifier: Apache-2.0
// Which kernels there are.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/api/smla_kernel.h"

namespace smla {

/// `built_in`: what one runs by default. `variant`: healthy kernels in other arithmetic. `mutant`: one planted defect each. `fake`: no kernels at
/// all.
enum class KernelGroup { built_in, variant, mutant, fake };
std::string_view name_of(KernelGroup group);

/// The whole table, in order. `name` points into the kernel; pointers live as long as the program.
struct KernelEntry {
  const smla_kernel* kernel;
  KernelGroup group;
};
std::span<const KernelEntry> kernels();
std::vector<const smla_kernel*> kernels(KernelGroup group);

/// A kernel of any group. Throws UsageError naming the nearest one.
const smla_kernel& find_kernel(std::string_view name);

}  // namespace smla
