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
  /// "" if every promised impostor was rejected in some row, or no row could show one; else which were not.
  std::string accepted() const;

 private:
  struct Watched {
    Impostor impostor;
    bool shown = false, rejected = false;
  };
  const Inputs& in_;
  Contract contract_;
  bool split_;
  std::vector<Watched> watched_;
};

}  // namespace smla
