// SPDX-License-Identifier: Apache-2.0
// The checks beside the numbers: a visible table of runs that ask the same question another way (README.md, "checks").
// A check only says which runs it wants and what must hold of them; judge_case.cc launches and judges them all by one path.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/contract.h"
#include "cases/inputs.h"
#include "harness/worker.h"

namespace smla {

/// When the outputs of a run must be those of the base run bit by bit. Where they need not be, or are not, the oracle judges the run like the base
/// run.
enum class SameBits : int32_t { never, if_deterministic, if_scale_exact, if_batch_invariant };

/// CheckRun::kernel: the built-in dense kernel of the device that the judged kernel runs on.
inline constexpr const char* kDenseOfDevice = "dense";
inline std::string dense_kernel(const std::string& device) { return device == "cuda" ? "dense_paged" : "cpu_dense"; }

/// One more run of the kernel.
struct CheckRun {
  Variant variant;
  OutputFill fill = OutputFill::nan;
  SameBits same_bits = SameBits::never;
  Guard guard = Guard::canary;
  bool own_oracle = false;  // the question changed: the oracle is asked the changed one
  Calls calls = Calls::plain;
  int launches = 1;
  Variant other = RunRequest().other;
  std::string kernel;         // another kernel is run on the same inputs, and both must agree; "" = this kernel
  bool first_launch = false;  // the kernel's first in its process. That costs a process, so it is asked once a run
};

/// The boolean column of accuracy.csv that a check feeds.
enum class CheckColumn : int32_t { guards, outputs_written, determinism, poison, metamorphic };

struct Check {
  std::string_view name;
  CheckColumn column;
  bool quick;  // runs by default; the others with --checks all or by name
  std::string_view what;
  bool needs_streams;  // asked of kernels on a GPU only; to others it does not apply
  /// The runs for this case; none = the check does not apply, or its facts come with every run (guards, inputs, written).
  std::vector<CheckRun> (*runs)(const Inputs& in, const Contract& contract);
};
std::span<const Check> checks();
/// "poison_huge fill_ones": what is changed.
std::string to_string(const CheckRun& run);

/// Indices into checks(): `quick`, `all`, `none`, or names joined by commas. Throws UsageError naming the nearest.
std::vector<size_t> parse_checks(const std::string& list);

/// "" if the contract covers these inputs, else the clause that excludes them: then the kernel is not asked.
std::string contract_excludes(const Contract& contract, const Inputs& in);

}  // namespace smla
