// SPDX-License-Identifier: Apache-2.0
// Calls through the door, in C++: optional functions, sizes and error texts looked after in one place.
#pragma once
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "cases/contract.h"
#include "kernels/api/smla_kernel.h"

namespace smla {

/// Why the kernel declines the problem; nullopt if it supports it.
std::optional<std::string> declines(const smla_kernel& kernel, const smla_problem& problem);
/// What it declares for it; the reference declaration if it has no `contract`. Throws UsageError for undefined values.
Contract contract(const smla_kernel& kernel, const smla_problem& problem);
int64_t workspace_bytes(const smla_kernel& kernel, const smla_problem& problem);
/// `prepare` or `launch` returned -ENOMEM; what() is the kernel's own text.
class KernelOutOfMemory : public std::bad_alloc {
 public:
  explicit KernelOutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};
/// Runs `prepare` (if there is one) or `launch`. Empty = it returned 0; otherwise the kernel's own text, or "returned N". Throws KernelOutOfMemory.
std::string prepare(const smla_kernel& kernel, const smla_problem& problem, const smla_buffers& buffers, void* workspace, void* stream = nullptr);
std::string launch(const smla_kernel& kernel, const smla_problem& problem, const smla_buffers& buffers, void* workspace, void* stream = nullptr);
/// 0 = the kernel does not say.
int32_t splits_used(const smla_kernel& kernel, const smla_problem& problem);

}  // namespace smla
