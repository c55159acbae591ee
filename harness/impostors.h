// SPDX-License-Identifier: Apache-2.0
// Impostors: plausible wrong answers that a value family promises to expose. They are judged by the code that judges kernels; a case whose
// reference would accept one is `mistrusted`, because its passes would prove nothing.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/contract.h"
#include "cases/inputs.h"
#include "reference/budget.h"
#include "reference/oracle.h"

namespace smla {

enum class Impostor : int32_t { zeros, mean_v, head_swap, key_missing };
template <>
struct Names<Impostor> {
  static constexpr std::string_view kKind = "Impostor";
  static constexpr std::string_view kAll[] = {"zeros", "mean(V)", "another head's row", "one key missing"};
};

/// What the family's data must expose. Empty where data of that kind cannot (weights nearly equal, or the row beyond the linearisation).
std::span<const Impostor> promised(Values values);

/// Shows impostors to the judge, row after row, until each promised one was rejected once.
class ImpostorWatch {
 public:
  ImpostorWatch(const Inputs& in, const Contract& contract, bool split);
  void add(const OracleBlock* block, std::span<const int64_t> tokens, const Limits& limits = {});
  /// "" if every promised impostor was rejected in some row, or no row could show one; else which were not, by the reference declaration either: the
  /// case is at fault.
  std::string accepted() const;
  /// The same of those that only the declared precision accepts: what the kernel declares is too loose for this case.
  std::string accepted_as_declared() const;

 private:
  struct Watched {
    Impostor impostor;
    bool shown = false, rejected = false, rejected_by_reference = false;
  };
  std::string names(bool by_reference_too) const;
  const Inputs& in_;
  Contract contract_, reference_;
  bool split_;
  std::vector<Watched> watched_;
};

}  // namespace smla
