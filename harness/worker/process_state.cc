// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/process_state.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "harness/worker/blackbox.h"

namespace smla {
namespace {

constexpr std::pair<int, const char*> kLimits[] = {{RLIMIT_AS, "RLIMIT_AS"},           {RLIMIT_DATA, "RLIMIT_DATA"},
                                                   {RLIMIT_STACK, "RLIMIT_STACK"},     {RLIMIT_RSS, "RLIMIT_RSS"},
                                                   {RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK"}, {RLIMIT_FSIZE, "RLIMIT_FSIZE"},
                                                   {RLIMIT_NOFILE, "RLIMIT_NOFILE"},   {RLIMIT_NPROC, "RLIMIT_NPROC"},
                                                   {RLIMIT_CPU, "RLIMIT_CPU"},         {RLIMIT_SIGPENDING, "RLIMIT_SIGPENDING"}};
constexpr __itimer_which kIntervalTimers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};

void add(std::string& all, const std::string& text) { all += (all.empty() ? "" : ", ") + text; }

bool runs(__itimer_which timer) {
  itimerval now{};
  return getitimer(timer, &now) == 0 && (now.it_value.tv_sec != 0 || now.it_value.tv_usec != 0);
}

/// Those of timer_create that send a signal which could end the process. The C library's own (SIGEV_THREAD) use one below SIGRTMIN that nobody else
/// may.
std::set<int> signalling_timers() {
  std::set<int> found;
  std::ifstream timers("/proc/self/timers");
  int id = -1, signal = 0;
  for (std::string line; std::getline(timers, line);) {
    std::sscanf(line.c_str(), "ID: %d", &id);
    std::sscanf(line.c_str(), "signal: %d", &signal);
    if (line.starts_with("notify: signal") && (signal < __SIGRTMIN || signal >= SIGRTMIN)) found.insert(id);
  }
  return found;
}

struct Schedule {
  std::array<unsigned long, 128> cores{};  // 8192 of them; cpu_set_t has 1024
  int policy = sched_getscheduler(0), nice = getpriority(PRIO_PROCESS, 0);
  sched_param real_time{};
  Schedule() {
    syscall(SYS_sched_getaffinity, 0, sizeof cores, cores.data());
    sched_getparam(0, &real_time);
  }
};

}  // namespace

ProcessState::ProcessState() : timers_(signalling_timers()) {
  for (const auto& [resource, name] : kLimits) getrlimit(static_cast<__rlimit_resource>(resource), &limits_[static_cast<size_t>(resource)]);
  for (const auto timer : kIntervalTimers) interval_timers_[static_cast<size_t>(timer)] = runs(timer);
  put_back_schedule();
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
  bool timer_left = false;
  for (const auto timer : kIntervalTimers) {
    constexpr itimerval none{};
    if (!interval_timers_[static_cast<size_t>(timer)] && runs(timer)) timer_left |= setitimer(timer, &none, nullptr) == 0;
  }
  for (const int id : signalling_timers())
    if (!timers_.contains(id)) timer_left |= syscall(SYS_timer_delete, id) == 0;
  if (timer_left) add(changes, "a timer was left that would send a signal later");
  for (const std::string& signal : lost_fault_handlers()) add(changes, "the handler of " + signal + " was replaced: faults would not be seen");
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) add(changes, fmt::format("no more memory can be mapped: {}", std::strerror(errno)));
  else munmap(page, 4096);
  const int descriptor = dup(STDERR_FILENO);
  if (descriptor < 0 && errno == EMFILE) add(changes, "no descriptor is left to open a file");
  if (descriptor >= 0) close(descriptor);
  if (const std::string schedule = put_back_schedule(); !schedule.empty()) add(changes, schedule);
  if (!changes.empty()) watch_for_faults();
  return changes;
}

std::string put_back_schedule() {
  static const Schedule first;
  const Schedule now;
  std::string lost;
  if (now.cores != first.cores && syscall(SYS_sched_setaffinity, 0, sizeof first.cores, first.cores.data()) != 0)
    add(lost, "its cores cannot be had back");
  if (now.policy != first.policy && sched_setscheduler(0, first.policy, &first.real_time) != 0)
    add(lost, fmt::format("its scheduling policy is {} now", now.policy));
  if (now.nice != first.nice && setpriority(PRIO_PROCESS, 0, first.nice) != 0) add(lost, fmt::format("its priority was lowered to {}", now.nice));
  return lost;
}

}  // namespace smla
