// SPDX-License-Identifier: Apache-2.0
// A CPU kernel is a row of a table: name, body, arithmetic. This makes the C door's struct of it.
#pragma once
#include <span>
#include <vector>

#include "kernels/cpu/steps.h"

namespace smla::cpu {

/// A row of a table of CPU kernels; behind smla_kernel::user.
struct Spec {
  const char* name;
  const char* description;
  Config config = {};
  struct Body {
    int64_t (*workspace_bytes)(const Call&);
    int (*splits)(const Call&);
    void (*run)(const Steps* defect, const Call&, void* workspace);
    const char* (*refuses)(const Call&);  // the reason, or null
  } body;
  const Steps* defect = nullptr;     // null = healthy
  const Config* declares = nullptr;  // null = config: what it does
};

/// A body in its healthy steps.
template <class B>
constexpr Spec::Body healthy() {
  return {B::workspace_bytes, B::splits, [](const Steps*, const Call& c, void* workspace) { B::run(Healthy(), c, workspace); }, B::refuses};
}

inline Config naive_config() { return {.p = Rounding::fp32, .fp8 = Fp8::fp32, .own_splits = OwnSplits::one}; }

/// The door's structs of a table of specs (which must outlive them).
std::vector<smla_kernel> door(std::span<const Spec> specs);

/// The tables. `variants`: the blocked kernel in other arithmetic and under other conventions, healthy too; for calibration and worked contracts.
std::span<const smla_kernel> kernels();
std::span<const smla_kernel> variants();

}  // namespace smla::cpu
