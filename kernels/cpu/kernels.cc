// SPDX-License-Identifier: Apache-2.0
// The CPU kernels: one row each.
#include "kernels/cpu/kernel.h"

namespace smla::cpu {
namespace {

constexpr Config kFp32 = {.p = Rounding::fp32, .fp8 = Fp8::fp32, .own_splits = OwnSplits::one};

const Spec kKernels[] = {
    {"cpu_naive", "fp32, one query token at a time, no tiles and no splits", kFp32, healthy<NaiveBody>()},
};

}  // namespace

std::span<const smla_kernel> kernels() {
  static const std::vector<smla_kernel> all = door(kKernels);
  return all;
}

std::span<const smla_kernel> variants() { return {}; }

}  // namespace smla::cpu
