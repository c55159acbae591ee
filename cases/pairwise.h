// SPDX-License-Identifier: Apache-2.0
// The axes of suite `regression` and what it means that two of their values meet in a case.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"

namespace smla::pairwise {

/// An axis: a name for people, and the words of a case line that each of its values stands for.
struct Axis {
  std::string name;
  std::vector<std::string> values;
};
const std::vector<Axis>& axes();

/// One value an axis, by number, in the order of axes().
using Choice = std::vector<int>;

/// The case that a choice spells, or nothing where it contradicts itself. The seed is left at its default.
std::optional<Case> spell(const Choice& choice);

/// The choice that a case was spelled from; nothing for one that was not. The seed does not matter.
std::optional<Choice> read(const Case& c);

/// What a case costs: T * h_q * topk, and bytes of its pool.
double work(const Case& c);
double pool_bytes(const Case& c);
/// Small enough for CPU kernels and the oracle: work <= 2^18 and a pool of at most 128 MiB. Bigger ones are tagged `gpu`, and end at kGpuWork and
/// kGpuPool.
bool fits_cpu(const Case& c);
bool fits_gpu(const Case& c);

}  // namespace smla::pairwise
