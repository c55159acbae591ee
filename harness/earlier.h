// SPDX-License-Identifier: Apache-2.0
// What a run that is resumed has in its report already.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "reports/outcome.h"

namespace smla {

/// A fresh run has nothing.
class Earlier {
 public:
  Earlier() = default;
  /// The rows of run_id in OUT/<arch>. `retry`: without those that ended in crash, timeout or oom. Samples of a pair whose row was not written any
  /// more are cut.
  Earlier(const std::string& folder, const std::string& run_id, bool retry);
  Earlier(Earlier&&) = default;
  Earlier& operator=(Earlier&&) = default;

  /// Null: still to be done.
  const Outcome* judged(const Case& c, const std::string& kernel) const;
  const ThroughputRow* timed(const Case& c, const std::string& kernel, const std::string& timing, const std::string& cache) const;

 private:
  std::vector<AccuracyRow> accuracy_;
  std::vector<ThroughputRow> throughput_;
  std::map<std::string, Outcome> judged_;              // into accuracy_
  std::map<std::string, const ThroughputRow*> timed_;  // into throughput_
};

}  // namespace smla
