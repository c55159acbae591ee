// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/process_state.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "harness/worker/blackbox.h"

namespace smla {
namespace {

constexpr std::pair<int, const char*> kLimits[] = {{RLIMIT_AS, "RLIMIT_AS"},           {RLIMIT_DATA, "RLIMIT_DATA"},
                                                   {RLIMIT_STACK, "RLIMIT_STACK"},     {RLIMIT_RSS, "RLIMIT_RSS"},
                                                   {RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK"}, {RLIMIT_FSIZE, "RLIMIT_FSIZE"},
                                                   {RLIMIT_NOFILE, "RLIMIT_NOFILE"},   {RLIMIT_NPROC, "RLIMIT_NPROC"},
                                                   {RLIMIT_CPU, "RLIMIT_CPU"},         {RLIMIT_SIGPENDING, "RLIMIT_SIGPENDING"}};

void add(std::string& all, const std::string& text) { all += (all.empty() ? "" : ", ") + text; }

}  // namespace

ProcessState::ProcessState() {
  for (const auto& [resource, name] : kLimits) getrlimit(static_cast<__rlimit_resource>(resource), &limits_[static_cast<size_t>(resource)]);
}

std::string ProcessState::put_back() {
  std::string changes;
  for (const auto& [resource, name] : kLimits) {
    const rlimit& before = limits_[static_cast<size_t>(resource)];
    rlimit now;
    getrlimit(static_cast<__rlimit_resource>(resource), &now);
    if (now.rlim_cur >= before.rlim_cur && now.rlim_max >= before.rlim_max) continue;  // a runtime may raise one for itself
    setrlimit(static_cast<__rlimit_resource>(resource), &before);
    add(changes, fmt::format("{} was lowered to {}", name, now.rlim_cur));
  }
  constexpr itimerval none{};
  itimerval alarm{};
  if (setitimer(ITIMER_REAL, &none, &alarm) == 0 && (alarm.it_value.tv_sec != 0 || alarm.it_value.tv_usec != 0)) add(changes, "an alarm was left");
  for (const std::string& signal : lost_fault_handlers()) add(changes, "the handler of " + signal + " was replaced: faults would not be seen");
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) add(changes, fmt::format("no more memory can be mapped: {}", std::strerror(errno)));
  else munmap(page, 4096);
  const int descriptor = dup(STDERR_FILENO);
  if (descriptor < 0 && errno == EMFILE) add(changes, "no descriptor is left to open a file");
  if (descriptor >= 0) close(descriptor);
  if (!changes.empty()) watch_for_faults();
  return changes;
}

}  // namespace smla
