// SPDX-License-Identifier: Apache-2.0
#include "harness/interrupt.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace smla {
namespace {

std::atomic<int> g_signal{0};

/// timeout(1) sends the same signal to its child and to its group: that is once.
constexpr auto kOnce = std::chrono::milliseconds(250);

constexpr const char* kMark = "SMLA_RUN";  // in the environment

/// Signals are read from a descriptor, in order and by whoever wants to know what was sent up to now: a handler could come too late for that.
struct Watch {
  std::mutex mutex;
  int descriptor = -1;
  std::chrono::steady_clock::time_point first;  // when the user asked to stop
  std::map<pid_t, int> groups;                  // leader -> the last signal that came out of its group
};
Watch& watch() {
  static Watch& watch = *new Watch;  // never destroyed: its thread outlives main
  return watch;
}

/// As if nobody had ever watched.
void take_its_course(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void stop(Watch& w, int signal) {
  const auto now = std::chrono::steady_clock::now();
  if (g_signal != 0 && now - w.first < kOnce) return;
  if (g_signal.exchange(signal) != 0) take_its_course(signal);
  w.first = now;
  constexpr char text[] = "\nsmla: stopping: what is finished is written; once more stops at once\n";
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {}  // nobody reads it
  for (const auto& [leader, sent] : w.groups) kill(-leader, SIGKILL);
}

/// Takes what was sent up to now. The mutex is held.
void take_signals(Watch& w) {
  signalfd_siginfo info;
  while (w.descriptor >= 0 && read(w.descriptor, &info, sizeof info) == ssize_t{sizeof info}) {
    const auto signal = static_cast<int>(info.ssi_signo);
    const auto sender = static_cast<pid_t>(info.ssi_pid);  // 0: the terminal
    auto group = w.groups.find(sender);
    if (group == w.groups.end() && sender > 0) group = w.groups.find(getpgid(sender));
    if (group != w.groups.end()) group->second = signal;
    else if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) stop(w, signal);
    else take_its_course(signal);
  }
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code none;  // a kernel without such files: then nobody is found
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child; file >> child;) found.push_back(child);
  }
  return found;
}

/// Whether it carries this process's mark (mark_descendants). A program that turns into this one by exec, or the first process of a container, has
/// children of others.
bool is_marked(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  const std::string mark = fmt::format("{}={}", kMark, getpid());
  for (std::string word; std::getline(file, word, '\0');)
    if (word == mark) return true;
  return false;
}

/// Ends what is left of workers that are gone: a daemon with a session of its own comes to its next living ancestor, which is this process. Workers
/// and their groups are left alone, and the dead but for a group's followers: their Process asks how they ended. The mutex is held.
void end_orphans(const Watch& w) {
  bool any = true;
  for (int generation = 0; any && generation < 100; ++generation) {
    any = false;
    for (const pid_t child : children()) {
      const pid_t group = getpgid(child);
      siginfo_t end{};
      if (group < 0 || group == getpgrp() || waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0) continue;
      const bool dead = end.si_pid != 0;
      if (dead && group != child) waitpid(child, nullptr, WNOHANG | __WALL);
      if (dead || w.groups.contains(group) || !is_marked(child) || kill(child, SIGKILL) != 0) continue;
      for (int ms = 0; !any && ms < 100; ++ms) {  // one that a driver holds is left
        any = waitpid(child, nullptr, WNOHANG | __WALL) != 0;
        if (!any) usleep(1000);
      }
    }
  }
}

void take_signals_for_ever(int descriptor) {
  pollfd ready{descriptor, POLLIN, 0};
  for (;;)
    if (poll(&ready, 1, -1) > 0) {
      const std::lock_guard lock(watch().mutex);
      take_signals(watch());
    }
}

}  // namespace

void mark_descendants() { setenv(kMark, std::to_string(getpid()).c_str(), 1); }

void watch_interrupts() {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  if (w.descriptor >= 0) return;
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM}) {
    struct sigaction now {};
    if (number == SIGHUP && sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) continue;  // nohup
    sigaddset(&set, number);
  }
  w.descriptor = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (w.descriptor < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::thread(take_signals_for_ever, w.descriptor).detach();
}

int interrupted() { return g_signal; }

WorkerGroup::WorkerGroup(const std::function<pid_t()>& start) {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  leader_ = start();
  w.groups[leader_] = 0;
  if (interrupted()) kill(-leader_, SIGKILL);
}

WorkerGroup::~WorkerGroup() {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  take_signals(w);
  if (w.descriptor >= 0) end_orphans(w);
  w.groups.erase(leader_);
}

int WorkerGroup::signal_sent() const {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  take_signals(w);
  return w.groups.at(leader_);
}

}  // namespace smla
