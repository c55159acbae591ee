// SPDX-License-Identifier: Apache-2.0
#include "harness/python/python_worker.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "cases/words.h"

namespace smla {
namespace {

namespace fs = std::filesystem;

/// The folder comes in as an argument, so that no file of the user's folder can pass for a module of ours.
constexpr const char* kStart = "import sys; sys.path.insert(0, sys.argv.pop(1)); from smla import worker; worker.main()";

}  // namespace

std::string program_file() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&program_file), &here) != 0 && here.dli_fname != nullptr)
    if (const fs::path file = here.dli_fname; file.extension() == ".so") return fs::absolute(file).parent_path() / "smla";
  return "/proc/self/exe";
}

std::string python_file(const std::string& spec) {
  const size_t end = spec.find(".py:");
  return spec.substr(0, end == std::string::npos ? end : end + 3);
}

std::vector<std::string> python_worker(const std::string& spec) {
  std::error_code error;
  const fs::path home = fs::canonical(program_file(), error).parent_path();
  for (const fs::path& needed : {home / "libsmla.so", home / "python" / "smla" / "worker.py"})
    if (error || !fs::exists(needed)) throw UsageError(fmt::format("--python: {} is not there: it belongs beside the program", needed.string()));
  const char* interpreter = std::getenv("SMLA_PYTHON");
  return {interpreter != nullptr && *interpreter != 0 ? interpreter : "python3", "-u", "-B", "-c", kStart, home / "python", "--python=" + spec};
}

}  // namespace smla
