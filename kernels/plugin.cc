// SPDX-License-Identifier: Apache-2.0
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <vector>

#include "cases/words.h"
#include "kernels/registry.h"

namespace smla {
namespace {

/// What a kernel's struct must reach to: everything up to `launch`. What comes behind it may be missing.
constexpr size_t kLeastKernelBytes = offsetof(smla_kernel, launch) + sizeof(smla_kernel::launch);

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '+' || c == '-';
  });
}

/// What is wrong with one kernel, or "".
std::string fault(const smla_kernel* kernel) {
  if (!kernel) return "is a null pointer";
  if (kernel->struct_size < kLeastKernelBytes)
    return fmt::format("has struct_size {}, but ABI {} needs at least {} bytes of smla_kernel", kernel->struct_size, SMLA_ABI_VERSION,
                       kLeastKernelBytes);
  if (!kernel->name || !is_name(kernel->name))
    return fmt::format("has the name '{}': a name is made of [a-z0-9_.+-]", kernel->name ? kernel->name : "");
  if (kernel->device != SMLA_DEVICE_CPU && kernel->device != SMLA_DEVICE_CUDA)
    return fmt::format("('{}') has the unknown device {}", kernel->name, kernel->device);
  for (const auto& [function, is_missing] :
       {std::pair{"supports", !kernel->supports}, {"workspace_bytes", !kernel->workspace_bytes}, {"launch", !kernel->launch}})
    if (is_missing) return fmt::format("('{}') has no {}", kernel->name, function);
  for (const KernelEntry& entry : smla::kernels())
    if (std::string_view(entry.kernel->name) == kernel->name) return fmt::format("is called '{}', as a built-in kernel is", kernel->name);
  return {};
}

void require(const std::string& path, bool holds, const std::string& what) {
  if (!holds) throw UsageError("plug-in " + path + ": " + what);
}

/// Loads the library and asks it for its kernels. An absolute path: dlopen looks a bare name up elsewhere.
const smla_library* load(const std::string& path) {
  void* handle = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) require(path, false, fmt::format("cannot be loaded: {}", dlerror()));
  const auto get_library = reinterpret_cast<smla_get_library_fn>(dlsym(handle, "smla_get_library"));
  require(path, get_library, "exports no smla_get_library (extern \"C\" SMLA_EXPORT, kernels/api/smla_kernel.h)");
  return get_library();
}

}  // namespace

Plugin::Plugin(const std::string& path) : Plugin(load(path), path) {}

Plugin::Plugin(const smla_library* library, const std::string& path) : path_(path) {
  const auto require = [&](bool holds, const std::string& what) { smla::require(path_, holds, what); };
  require(library, "smla_get_library returned null");
  require(library->abi_version == SMLA_ABI_VERSION,
          fmt::format("was built for ABI {}, this program speaks ABI {}", library->abi_version, SMLA_ABI_VERSION));
  require(library->struct_size >= sizeof(smla_library),
          fmt::format("has struct_size {} in smla_library, which takes {} bytes", library->struct_size, sizeof(smla_library)));
  require(library->num_kernels > 0 && library->kernels, "holds no kernel");
  kernels_ = {library->kernels, static_cast<size_t>(library->num_kernels)};
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const std::string wrong = fault(kernels_[i]);
    require(wrong.empty(), fmt::format("kernel {} of {} {}", i + 1, kernels_.size(), wrong));
    for (size_t j = 0; j < i; ++j)
      require(std::string_view(kernels_[j]->name) != kernels_[i]->name,
              fmt::format("kernels {} and {} are both called '{}'", j + 1, i + 1, kernels_[i]->name));
  }
}

const smla_kernel& Plugin::find(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const smla_kernel* kernel : kernels_) {
    if (kernel->name == name) return *kernel;
    names.push_back(kernel->name);
  }
  throw_unknown_value("kernel of " + path_, name, names.data(), names.size());
}

}  // namespace smla
