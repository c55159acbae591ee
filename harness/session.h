// SPDX-License-Identifier: Apache-2.0
// The workers of one invocation and the kernels they hold.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cuda/cuda_device.h"
#include "harness/options.h"
#include "harness/plan.h"

namespace smla {

class Session {
 public:
  /// Starts a worker for the built-in kernels, one for the plug-in if there is one, and one for each Python kernel. Throws UsageError for what cannot
  /// be loaded.
  explicit Session(const Options& options);
  const std::vector<Candidate>& all() const { return all_; }
  /// What --kernel chooses; without it the user's own kernels, or where there are none the built-in ones but variants (`base+change`): those for
  /// CUDA where there is a GPU, else those for the CPU.
  std::vector<Candidate> chosen() const;
  /// The same where kernels for CUDA, or else those for the CPU, are the default choice.
  std::vector<Candidate> chosen(bool cuda) const;
  /// The GPU that CUDA kernels run on (the first of --gpu, else GPU 0); empty: `why_no_gpu` says why. Asked for once, when somebody wants to know:
  /// the answer takes the driver a while.
  const std::optional<GpuInfo>& gpu() const;
  /// Largest memory of the workers that run now, together.
  int64_t workers_peak_bytes() const;
  const std::string& why_no_gpu() const { return why_no_gpu_; }

 private:
  int gpu_ordinal() const { return options_.gpus.empty() ? 0 : options_.gpus.front(); }
  const Options& options_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Candidate> all_;
  mutable bool gpu_asked_ = false;
  mutable std::optional<GpuInfo> gpu_;
  mutable std::string why_no_gpu_ = "no kernel here is for CUDA";
  size_t own_kernels_ = 0;  // the user's, of plug-in and Python: they come first in all_
};

/// Runs a case once and brings every row back.
RunReply run_all_rows(const Candidate& candidate, const Inputs& in, const Options& options);

}  // namespace smla
