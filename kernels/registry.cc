// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include <algorithm>

#include "cases/words.h"
#include "kernels/cpu/kernel.h"
#include "kernels/mutants/mutant.h"
#ifdef SMLA_HAVE_CUDA
#include "kernels/common/kernels.h"
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
  add(KernelGroup::fake, mutants::fakes());
  return table;
}

[[noreturn]] void throw_unknown(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KernelEntry& entry : kernels()) names.push_back(entry.kernel->name);
  const std::string near = nearest(name, names.data(), names.size());
  throw UsageError("unknown kernel '" + std::string(name) + "'" + (near.empty() ? "; `smla list` names them" : "; did you mean '" + near + "'?"));
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
  for (const KernelEntry& entry : kernels())
    if (entry.kernel->name == name) return *entry.kernel;
  throw_unknown(name);
}

std::vector<const smla_kernel*> match_kernels(std::string_view patterns, KernelGroup group) {
  std::vector<bool> chosen(kernels().size());
  for (size_t begin = 0; begin <= patterns.size();) {
    const size_t end = std::min(patterns.find(',', begin), patterns.size());
    const std::string_view pattern = patterns.substr(begin, end - begin);
    bool matched = false;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const KernelEntry& entry = kernels()[i];
      if (entry.kernel->name != pattern && !(entry.group == group && glob_match(pattern, entry.kernel->name))) continue;
      chosen[i] = matched = true;
    }
    if (!matched) throw_unknown(pattern);
    begin = end + 1;
  }
  std::vector<const smla_kernel*> found;
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i]) found.push_back(kernels()[i].kernel);
  return found;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') return glob_match(pattern.substr(1), text) || (!text.empty() && glob_match(pattern, text.substr(1)));
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) && glob_match(pattern.substr(1), text.substr(1));
}

}  // namespace smla
