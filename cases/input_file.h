// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace smla {

/// A whole file that somebody named. Throws UsageError "FILE: why": it is not there, a folder, a device, cannot be read. `or_pipe`: what is read once
/// may come out of a pipe, as from <(...).
std::string read_input_file(const std::string& path, bool or_pipe = false);

}  // namespace smla
