// SPDX-License-Identifier: Apache-2.0
// What check, bench and run have in common. Everything that can be refused is refused while this is made, before anything runs or is written.
#pragma once
#include <string>
#include <vector>

#include "harness/earlier.h"
#include "harness/options.h"
#include "harness/plan.h"
#include "harness/session.h"
#include "reports/folder_lock.h"
#include "reports/record.h"
#include "reports/run_start.h"

namespace smla {

/// OUT/<arch>, created. Throws UsageError where that cannot be.
std::string report_folder(const Options& options, const std::string& arch);

struct Job {
  /// Throws UsageError, CannotStart or NothingMatched. From here on Ctrl-C is watched, and nobody else writes into the folder.
  explicit Job(const Options& options);

  const Options& options;
  const std::vector<size_t> checks;  // indices into smla::checks()
  const std::vector<PlannedCase> plan;
  const Session session;
  const std::vector<Candidate> kernels;
  Common run;                // what every row begins with
  const std::string folder;  // OUT/<arch>, created
  const FolderLock lock;
  RunStart start;
  Earlier earlier;  // --resume
};

}  // namespace smla
