// SPDX-License-Identifier: Apache-2.0
// Kernels from a shared library, through the same door as the built-in ones.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "kernels/api/smla_kernel.h"

namespace smla {

/// A loaded library. It stays loaded until the process ends: its threads and exit handlers may outlive any object of ours.
class Plugin {
 public:
  /// Loads `path` and checks everything that the door promises before a single function is called. Throws UsageError naming the file, the kernel and
  /// what is wrong.
  explicit Plugin(const std::string& path);
  /// The same checks of a library that this process holds already; `path` is what errors call it.
  Plugin(const smla_library* library, const std::string& path);
  std::span<const smla_kernel* const> kernels() const { return kernels_; }
  /// Throws UsageError naming the nearest kernel of this library.
  const smla_kernel& find(std::string_view name) const;

 private:
  std::string path_;
  std::span<const smla_kernel* const> kernels_;
};

}  // namespace smla
