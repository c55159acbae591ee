// SPDX-License-Identifier: Apache-2.0
#include "cases/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cases/words.h"

namespace smla {

bool read_whole_file(const std::string& path, std::string& text) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char block[1 << 16];
  ssize_t n;
  while ((n = read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))
    if (n > 0) text.append(block, static_cast<size_t>(n));
  const int error = errno;
  close(fd);
  errno = error;
  return n == 0;
}

std::string read_input_file(const std::string& path, bool or_pipe) {
  const auto fail = [&](const std::string& why) { return UsageError(path + ": " + why); };
  struct stat is;
  if (stat(path.c_str(), &is) != 0) throw fail(std::strerror(errno));
  if (S_ISDIR(is.st_mode)) throw fail("is a directory");
  if (!S_ISREG(is.st_mode) && !(or_pipe && S_ISFIFO(is.st_mode))) throw fail("is no regular file");
  std::string text;
  if (!read_whole_file(path, text)) throw fail(std::strerror(errno));
  return text;
}

}  // namespace smla
