// SPDX-License-Identifier: Apache-2.0
#include "kernels/archs.h"

#include <string>
#include <vector>

#include "cases/words.h"

namespace smla {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Shared memory a block: CUDA C++ Programming Guide, technical specifications per compute capability. SMs and L2: the vendors' data sheets.
constexpr Arch kArchs[] = {
    {"sm_80", 80, "A100", 108, 166912, 40 * kMiB},
    {"sm_86", 86, "RTX A6000", 84, 101376, 6 * kMiB},
    {"sm_89", 89, "L40S", 142, 101376, 96 * kMiB},
    {"sm_90", 90, "H200", 132, 232448, 50 * kMiB},
    {"sm_100", 100, "B200", 148, 232448, 126 * kMiB},
    {"sm_103", 103, "B300", 148, 232448, 126 * kMiB},
    {"sm_120", 120, "RTX PRO 6000", 188, 101376, 128 * kMiB},
    {"sm_121", 121, "GB10", 48, 101376, 24 * kMiB},
};

}  // namespace

std::span<const Arch> archs() { return kArchs; }

const Arch& find_arch(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Arch& arch : kArchs) {
    if (arch.name == name) return arch;
    names.push_back(arch.name);
  }
  throw_unknown_value("--arch", name, names.data(), names.size());
}

void describe_arch(int32_t cc, smla_problem& problem) {
  problem.device_cc = cc;
  for (const Arch& arch : kArchs)
    if (arch.cc == cc) {
      problem.sm_count = arch.sm_count;
      problem.smem_optin_bytes = arch.smem_optin_bytes;
      problem.l2_bytes = arch.l2_bytes;
    }
}

}  // namespace smla
