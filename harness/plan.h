// SPDX-License-Identifier: Apache-2.0
// What will run: the cases that the flags choose, in order and without doubles, and the kernels that are asked each of them.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cases/suite.h"
#include "harness/options.h"
#include "harness/worker.h"

namespace smla {

/// A kernel that can be asked, and the worker that holds it.
struct Candidate {
  KernelInfo info;
  Worker* worker = nullptr;
};

struct PlannedCase {
  SuiteCase suite_case;
  std::string suite;  // name of the suite, of the file, or "" for a --case line
  const Case& c() const { return suite_case.c; }
  bool tagged(const char* tag) const { return std::find(suite_case.tags.begin(), suite_case.tags.end(), tag) != suite_case.tags.end(); }
};

/// Cases of --suite, --cases and --case (suite quick if none is given), multiplied by --set, cut by --filter, --skip and --shard.
/// Throws UsageError for bad text, NothingMatched if no case is left.
std::vector<PlannedCase> plan_cases(const Options& options);

/// What is said beside a kernel that is not here, and may be one for a GPU. Empty: kernels for a GPU are in this build.
const char* without_cuda();

/// Kernels that match any --kernel glob; without one, `defaults` decides. A plain name that no kernel has throws UsageError naming the nearest;
/// globs that match nothing throw NothingMatched.
std::vector<Candidate> choose_kernels(const std::vector<Candidate>& all, const std::vector<std::string>& globs);

/// True if the case belongs to part `index` (from 1) of `count`: by its hash, so that editing a suite moves no other case.
bool in_shard(const Case& c, int index, int count);

/// The cases with `key=v1,v2,...` replaced: the product, in order.
std::vector<SuiteCase> with_set(const std::vector<SuiteCase>& cases, const std::string& key_values);

}  // namespace smla
