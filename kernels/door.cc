// SPDX-License-Identifier: Apache-2.0
#include "kernels/door.h"

#include <cerrno>
#include <cstddef>

#include "kernels/contract.h"

namespace smla {
namespace {

/// An optional function: null where the kernel's struct ends before it.
template <class F>
F optional_field(const smla_kernel& kernel, F smla_kernel::*field) {
  const size_t offset = reinterpret_cast<const char*>(&(kernel.*field)) - reinterpret_cast<const char*>(&kernel);
  return offset + sizeof(F) <= kernel.struct_size ? kernel.*field : nullptr;
}

std::string error_text(const smla_kernel& kernel, int result) {
  char text[512] = "";
  if (const auto last_error = optional_field(kernel, &smla_kernel::last_error)) last_error(&kernel, text, sizeof text);
  text[sizeof text - 1] = 0;
  return text[0] ? text : "returned " + std::to_string(result);
}

std::string outcome(const smla_kernel& kernel, int result) {
  if (result == -ENOMEM) throw KernelOutOfMemory(error_text(kernel, result));
  return result == 0 ? std::string() : error_text(kernel, result);
}

}  // namespace

std::optional<std::string> declines(const smla_kernel& kernel, const smla_problem& problem) {
  char reason[512] = "";
  if (kernel.supports(&kernel, &problem, reason, sizeof reason)) return std::nullopt;
  reason[sizeof reason - 1] = 0;
  return reason[0] ? reason : "no reason given";
}

Contract contract(const smla_kernel& kernel, const smla_problem& problem) {
  if (!kernel.contract) return reference_contract();
  smla_contract c = {};
  c.struct_size = sizeof c;
  if (const int result = kernel.contract(&kernel, &problem, &c))
    throw UsageError("kernel '" + std::string(kernel.name) + "': contract " + error_text(kernel, result));
  return from_c(c, kernel.name);
}

int64_t workspace_bytes(const smla_kernel& kernel, const smla_problem& problem) { return kernel.workspace_bytes(&kernel, &problem); }

std::string prepare(const smla_kernel& kernel, const smla_problem& problem, const smla_buffers& buffers, void* workspace, void* stream) {
  return kernel.prepare ? outcome(kernel, kernel.prepare(&kernel, &problem, &buffers, workspace, stream)) : std::string();
}

std::string launch(const smla_kernel& kernel, const smla_problem& problem, const smla_buffers& buffers, void* workspace, void* stream) {
  return outcome(kernel, kernel.launch(&kernel, &problem, &buffers, workspace, stream));
}

int32_t splits_used(const smla_kernel& kernel, const smla_problem& problem) {
  const auto splits = optional_field(kernel, &smla_kernel::splits_used);
  return splits ? splits(&kernel, &problem) : 0;
}

}  // namespace smla
