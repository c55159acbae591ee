// SPDX-License-Identifier: Apache-2.0
// Where the program's own files stand, and how a Python process that serves as a worker is started.
#pragma once
#include <string>
#include <vector>

namespace smla {

/// The `smla` program: this process's own, or the one beside libsmla.so where that was loaded into another program.
std::string program_file();

/// Program and arguments of a worker that holds the kernel of `spec`, "FILE.py:FUNCTION key=value ...". The interpreter is $SMLA_PYTHON, else
/// `python3`. Throws UsageError if the Python module or libsmla.so is not beside the program.
std::vector<std::string> python_worker(const std::string& spec);

/// FILE.py of a spec.
std::string python_file(const std::string& spec);

}  // namespace smla
