// SPDX-License-Identifier: Apache-2.0
// For tests of the built program: calling it as people do.
#pragma once
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "smla_catch.h"

namespace smla {

/// The build folder, where `smla` stands: a test program lies in the folder of its room.
inline const std::filesystem::path kBuild = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();

struct Ran {
  int status = -1;
  std::string text;  // stdout and stderr
};

/// Runs in the build folder.
inline Ran shell(const std::string& command) {
  Ran ran;
  FILE* pipe = popen(("cd " + kBuild.string() + " && { " + command + "; } 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) ran.text.append(buffer, n);
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}
inline Ran run(const std::string& words) { return shell("./smla " + words); }

/// A folder that is gone afterwards.
struct Folder {
  Folder() {
    char name[] = "/tmp/smla_test.XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

inline int lines(const std::string& text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

}  // namespace smla
