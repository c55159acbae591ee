// SPDX-License-Identifier: Apache-2.0
// What every row of a run begins with, and where its reports go.
#pragma once
#include <string>

#include "harness/options.h"
#include "reports/record.h"

namespace smla {

Common describe_run();

/// OUT/<arch>, created. Throws UsageError where that cannot be.
std::string report_folder(const Options& options, const std::string& arch);

}  // namespace smla
