// SPDX-License-Identifier: Apache-2.0
// To be preloaded: the time of day goes back by an hour at every look. What measures must ask a clock that cannot be set.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {
std::atomic<long> looks{0};

timespec look(clockid_t id) {
  timespec now{};
  syscall(SYS_clock_gettime, id, &now);
  if (id == CLOCK_REALTIME) now.tv_sec -= 3600 * ++looks;
  return now;
}
}  // namespace

extern "C" {
int clock_gettime(clockid_t id, timespec* out) noexcept { return *out = look(id), 0; }
int gettimeofday(timeval* out, void*) noexcept {
  const timespec now = look(CLOCK_REALTIME);
  return *out = {now.tv_sec, now.tv_nsec / 1000}, 0;
}
time_t time(time_t* out) noexcept {
  const time_t now = look(CLOCK_REALTIME).tv_sec;
  if (out) *out = now;
  return now;
}
}
