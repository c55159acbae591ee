// SPDX-License-Identifier: Apache-2.0
// What check, bench and run have in common. Everything that can be refused is refused while this is made, before anything runs or is written.
#pragma once
#include <string>
#include <vector>

#include "harness/options.h"
#include "harness/plan.h"
#include "harness/session.h"
#include "reports/record.h"

namespace smla {

/// OUT/<arch>, created. Throws UsageError where that cannot be.
std::string report_folder(const Options& options, const std::string& arch);

struct Job {
  /// Throws UsageError, CannotStart or NothingMatched. From here on Ctrl-C is watched.
  explicit Job(const Options& options);

  const Options& options;
  const std::vector<size_t> checks;  // indices into smla::checks()
  const std::vector<PlannedCase> plan;
  const Session session;
  const std::vector<Candidate> kernels;
  const Common run;          // what every row begins with
  const std::string folder;  // OUT/<arch>, created
};

}  // namespace smla
