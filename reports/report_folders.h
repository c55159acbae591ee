// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace smla {

/// The folders that hold the report DIR: DIR itself, if `file` is in it; else DIR/<arch>, or of several cards DIR/gpuN/<arch>, each of which has the
/// cases of one. `arch` says which, where there are reports of several. Throws UsageError: there is none, or more than one to choose from.
std::vector<std::string> report_folders(const std::string& dir, std::string_view file, const std::string& arch = "");

}  // namespace smla
