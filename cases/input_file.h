// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace smla {

/// Appends all of a file, a pipe or a device to `text`. False: it cannot be read, and errno says why.
bool read_whole_file(const std::string& path, std::string& text);

/// A whole file that somebody named. Throws UsageError "FILE: why": it is not there, a folder, a device, cannot be read. `or_pipe`: what is read once
/// may come out of a pipe, as from <(...).
std::string read_input_file(const std::string& path, bool or_pipe = false);

}  // namespace smla
