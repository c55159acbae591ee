// SPDX-License-Identifier: Apache-2.0
#include "reports/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cases/words.h"
#include "reports/text.h"

namespace smla {

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/.lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw UsageError(fmt::format("cannot write into {}: {}", folder, std::strerror(errno)));
  int error = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  const std::string me = fmt::format("{}\n", ::getpid());
  if (error == 0 && (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, me.data(), me.size(), 0) != static_cast<ssize_t>(me.size())))
    error = errno != 0 ? errno : ENOSPC;
  if (error == 0) return;
  ::close(fd_);
  if (error != EWOULDBLOCK) throw UsageError(fmt::format("cannot write into {}: {}", folder, std::strerror(error)));
  const std::string holder = clean_text(read_text_file(path));
  throw UsageError(
      fmt::format("another run (process {}) is writing into {}: wait for it, or choose another --out", holder.substr(0, holder.find(' ')), folder));
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace smla
