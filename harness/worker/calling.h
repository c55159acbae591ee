// SPDX-License-Identifier: Apache-2.0
// The ways in which a request has a kernel called (Calls in harness/worker.h).
#pragma once
#include <string>
#include <vector>

#include "harness/worker.h"
#include "harness/worker/kernel_call.h"

namespace smla {

/// Looks at what is staged; says in the reply what was changed.
void look_at_inputs(StagedInputs& inputs, RunReply& reply);

/// Calls the kernel as `request.calls` says; its outputs then hold the answer to `first`. Into the reply go hashes, times, what was not written and
/// what is wrong with this way. `other`: the inputs beside them, null where the way needs none; graph makes them equal to `first`.
class Calling {
 public:
  Calling(KernelCall& call, const RunRequest& request, StagedInputs& first, StagedInputs* other, RunReply& reply)
      : call_(call), request_(request), first_(first), other_(other), reply_(reply) {}
  void run();

 private:
  void plain();
  void back_to_back();
  void gate();
  void graph();
  void streams();
  /// A workspace full of dirt, and a plan for these inputs in it.
  void prepare_on_dirt(StagedInputs& inputs, int turn, const std::string& stage);
  /// Of inputs that are too large to stand in memory together, those whose turn it is are generated, after a look at the others.
  void prepare(StagedInputs& inputs, const std::string& stage);
  /// Runs `work`, whose time counts as the kernel's. Milliseconds.
  template <class F>
  double timed(F&& work);
  void launch(const StagedInputs& inputs, const std::string& stage);
  /// The outputs hold an answer to `first`.
  void look();

  KernelCall& call_;
  const RunRequest& request_;
  StagedInputs& first_;
  StagedInputs* other_;
  RunReply& reply_;
  std::vector<double> launch_ms_;
};

}  // namespace smla
