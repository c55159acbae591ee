// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include "cases/words.h"
#include "kernels/cpu/kernel.h"
#include "kernels/mutants/mutant.h"
#ifdef SMLA_HAVE_CUDA
#include "kernels/common/kernels.h"
#include "kernels/mutants/gpu.h"
#endif

namespace smla {
namespace {

/// The table of tables.
std::vector<KernelEntry> make_table() {
  std::vector<KernelEntry> table;
  const auto add = [&](KernelGroup group, std::span<const smla_kernel> kernels) {
    for (const smla_kernel& kernel : kernels) table.push_back({&kernel, group});
  };
  add(KernelGroup::built_in, cpu::kernels());
#ifdef SMLA_HAVE_CUDA
  for (const smla_kernel* kernel : cuda::kernels()) table.push_back({kernel, KernelGroup::built_in});
#endif
  add(KernelGroup::variant, cpu::variants());
  add(KernelGroup::mutant, mutants::kernels());
#ifdef SMLA_HAVE_CUDA
  table.push_back({&mutants::gpu_base(), KernelGroup::variant});
  add(KernelGroup::mutant, mutants::gpu_kernels());
#endif
  add(KernelGroup::fake, mutants::fakes());
  return table;
}

}  // namespace

std::string_view name_of(KernelGroup group) {
  static constexpr std::string_view kNames[] = {"built_in", "variant", "mutant", "fake"};
  return kNames[static_cast<size_t>(group)];
}

std::span<const KernelEntry> kernels() {
  static const std::vector<KernelEntry> table = make_table();
  return table;
}

std::vector<const smla_kernel*> kernels(KernelGroup group) {
  std::vector<const smla_kernel*> found;
  for (const KernelEntry& entry : kernels())
    if (entry.group == group) found.push_back(entry.kernel);
  return found;
}

const smla_kernel& find_kernel(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KernelEntry& entry : kernels()) {
    if (entry.kernel->name == name) return *entry.kernel;
    names.push_back(entry.kernel->name);
  }
  throw_unknown_value("kernel", name, names.data(), names.size());
}

}  // namespace smla
