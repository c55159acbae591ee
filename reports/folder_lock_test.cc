// SPDX-License-Identifier: Apache-2.0
#include "reports/folder_lock.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "cases/words.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("one holder at a time, and a killed one holds nothing") {
  char name[] = "/tmp/smla_folder_lock_test_XXXXXX";
  const std::string folder = ::mkdtemp(name);
  std::optional<FolderLock> lock(std::in_place, folder);
  CHECK_THROWS_WITH(FolderLock(folder), ContainsSubstring(fmt::format("another run (process {}) is writing into {}", ::getpid(), folder)));
  lock.reset();
  CHECK_NOTHROW(FolderLock(folder));

  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const FolderLock held(folder);
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char x;
  REQUIRE(::read(ready[0], &x, 1) == 1);
  CHECK_THROWS_WITH(FolderLock(folder), ContainsSubstring(fmt::format("process {})", other)));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  CHECK_NOTHROW(FolderLock(folder));
  std::filesystem::remove_all(folder);
  CHECK_THROWS_WITH(FolderLock(folder), ContainsSubstring("cannot write into " + folder));
}
