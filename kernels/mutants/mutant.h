// SPDX-License-Identifier: Apache-2.0
// Healthy CPU kernels with one planted defect each: what the harness must be able to notice.
#pragma once
#include <optional>
#include <span>

#include "kernels/cpu/kernel.h"

namespace smla::mutants {

/// The last two are cpu_split under the contracts of kernels in wide use (kernels/cpu/kernels.cc).
enum class Base { naive, split, dense, virtual_block_table, like_flashinfer_sm120, like_vllm_triton };

/// What is wrong: a step that is overridden (kernels/cpu/steps.h), or arithmetic and conventions other than those declared.
struct Defect {
  const cpu::Steps* steps;
  std::optional<cpu::Config> config;
};

/// A row of the table (table.cc).
struct Mutant {
  const char* name;
  Base base;
  Defect defect;
  const char* mechanism;
  const char* reports;            // public reports of the same mechanism, or "" (a defect of our own)
  const char* out_of_reach = "";  // why no case of ordinary size shows it, or ""
};
std::span<const Mutant> table();
/// The healthy kernel that a mutant was made from.
const char* base_name(Base base);

/// A public report that has no mutant on the CPU, and why.
struct Excused {
  const char* report;
  const char* why;
};
std::span<const Excused> excused();

/// The door's structs: mutants in the table's order, and kernels that are no kernels (fakes.cc).
std::span<const smla_kernel> kernels();
std::span<const smla_kernel> fakes();

}  // namespace smla::mutants
