// SPDX-License-Identifier: Apache-2.0
// The workers of one invocation and the kernels they hold.
#pragma once
#include <memory>
#include <vector>

#include "harness/options.h"
#include "harness/plan.h"

namespace smla {

class Session {
 public:
  /// Starts a worker for the built-in kernels and one for the plug-in, if there is one. Throws UsageError for a library that cannot be loaded.
  explicit Session(const Options& options);
  const std::vector<Candidate>& all() const { return all_; }
  /// What --kernel chooses; without it the plug-in's kernels, or where there is no plug-in the built-in ones but variants (`base+change`).
  std::vector<Candidate> chosen() const;

 private:
  const Options& options_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Candidate> all_;
  size_t plugin_kernels_ = 0;  // they come first in all_
};

}  // namespace smla
