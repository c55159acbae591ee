// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/blackbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "harness/timeline.h"

namespace smla {
namespace {

Blackbox private_box;
Blackbox* box = &private_box;

struct NamedMemory {
  const char* name;
  uintptr_t begin, end;
};
std::array<NamedMemory, 64> named_memory;

struct LockedMemory {
  std::atomic<uintptr_t> begin{0}, end{0}, written{0};
};
std::array<LockedMemory, 32> locked_memory;
bool watching = false;
thread_local bool ours = false;

// Only async-signal-safe calls from here on: fmt::format_to into an array and std::from_chars neither allocate nor lock.

void describe_fault(uintptr_t address) {
  const NamedMemory* nearest = nullptr;
  uintptr_t nearest_distance = uintptr_t{1} << 40;  // further away is no near miss of a tensor
  for (const NamedMemory& m : named_memory) {
    if (!m.name) continue;
    uintptr_t distance = address < m.begin ? m.begin - address : address >= m.end ? address - m.end : 0;
    if (distance < nearest_distance) nearest = &m, nearest_distance = distance;
  }
  fmt::format_to_n_result<char*> r;
  if (!nearest) r = fmt::format_to_n(box->fault, sizeof box->fault - 1, "address {:#x}", address);
  else if (address < nearest->begin) r = fmt::format_to_n(box->fault, sizeof box->fault - 1, "{} bytes before {}", nearest_distance, nearest->name);
  else if (address >= nearest->end)
    r = fmt::format_to_n(box->fault, sizeof box->fault - 1, "{} bytes past the end of {}", nearest_distance, nearest->name);
  else r = fmt::format_to_n(box->fault, sizeof box->fault - 1, "byte {} of {}", address - nearest->begin, nearest->name);
  *r.out = '\0';
}

/// A write into locked memory: noted and let through. A second thread that comes to the same stretch finds it open.
bool let_write(uintptr_t address) {
  for (LockedMemory& locked : locked_memory) {
    const uintptr_t begin = locked.begin, end = locked.end;
    if (address < begin || address >= end) continue;
    uintptr_t none = 0;
    locked.written.compare_exchange_strong(none, address);
    return mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
  }
  return false;
}

void on_fatal_signal(int signal, siginfo_t* info, void*) {
  if (signal == SIGSEGV && info->si_code == SEGV_ACCERR && let_write(reinterpret_cast<uintptr_t>(info->si_addr))) return;
  box->data_bytes = data_bytes_now();
  box->in_other_thread = !ours;
  if (signal == SIGSEGV || signal == SIGBUS) describe_fault(reinterpret_cast<uintptr_t>(info->si_addr));
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

Blackbox& blackbox() { return *box; }
void open_blackbox(void* shared_page) { box = static_cast<Blackbox*>(shared_page); }

void set_stage(std::string_view stage, Turn turn) {
  if (turn == Turn::kernel && box->kernel_since_ns == 0) box->kernel_since_ns = steady_now_ns();
  if (turn == Turn::harness && box->kernel_since_ns != 0) {
    box->kernel_spent_ns += steady_now_ns() - box->kernel_since_ns;
    box->kernel_since_ns = 0;
  }
  size_t n = std::min(stage.size(), sizeof box->stage - 1);
  std::memcpy(box->stage, stage.data(), n);
  box->stage[n] = '\0';
}

void watch_for_faults() {
  static std::array<char, 65536> stack;  // a kernel may have overflowed the thread's
  stack_t alternate{stack.data(), 0, stack.size()};
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fatal_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &action, nullptr);
  watching = true;
  this_thread_is_ours();
}
void this_thread_is_ours() { ours = true; }

std::vector<std::string> lost_fault_handlers() {
  std::vector<std::string> lost;
  for (const auto& [signal, name] : {std::pair{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}}) {
    struct sigaction now {};
    if (watching && sigaction(signal, nullptr, &now) == 0 && now.sa_sigaction != on_fatal_signal) lost.emplace_back(name);
  }
  return lost;
}

bool lock_memory(void* begin, int64_t bytes) {
  if (!watching) return false;
  for (LockedMemory& locked : locked_memory) {
    if (locked.begin) continue;
    if (mprotect(begin, static_cast<size_t>(bytes), PROT_READ) != 0) return false;
    locked.written = 0;
    locked.end = reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(bytes);
    locked.begin = reinterpret_cast<uintptr_t>(begin);
    return true;
  }
  return false;
}
const void* first_write(const void* begin) {
  for (const LockedMemory& locked : locked_memory)
    if (locked.begin == reinterpret_cast<uintptr_t>(begin)) return reinterpret_cast<const void*>(locked.written.load());
  return nullptr;
}
void unlock_memory(const void* begin) {
  for (LockedMemory& locked : locked_memory) {
    if (!begin || locked.begin != reinterpret_cast<uintptr_t>(begin)) continue;
    mprotect(const_cast<void*>(begin), locked.end - locked.begin, PROT_READ | PROT_WRITE);
    locked.begin = locked.end = 0;
  }
}

void name_memory(const char* name, const void* data, int64_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  for (NamedMemory& m : named_memory)
    if (!m.name) return void(m = {name, begin, begin + static_cast<uintptr_t>(bytes)});
}
void forget_memory(const void* data) {
  for (NamedMemory& m : named_memory)
    if (m.begin == reinterpret_cast<uintptr_t>(data)) m = {};
}

int64_t data_bytes_now() {  // the sixth number of /proc/self/statm, in pages
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[256];
  ssize_t n = read(fd, text, sizeof text);
  close(fd);
  const char *at = text, *end = text + std::max<ssize_t>(n, 0);
  int64_t pages = 0;
  for (int field = 0; field < 6; ++field) {
    while (at < end && *at == ' ') ++at;
    auto parsed = std::from_chars(at, end, pages);
    if (parsed.ec != std::errc{}) return 0;
    at = parsed.ptr;
  }
  return pages * sysconf(_SC_PAGESIZE);
}

DataLimit::DataLimit(int64_t allowance_bytes) {
  rlimit limit;
  getrlimit(RLIMIT_DATA, &limit);
  before_ = limit.rlim_cur;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // shadow memory would count
  int64_t now = data_bytes_now();
  if (now == 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(now + allowance_bytes));
  if (setrlimit(RLIMIT_DATA, &limit) != 0) return;
  box->data_limit_bytes = static_cast<int64_t>(limit.rlim_cur);
  box->data_allowance_bytes = box->data_limit_bytes - now;
#endif
}
DataLimit::~DataLimit() {
  rlimit limit;
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = std::min(before_, limit.rlim_max);
  setrlimit(RLIMIT_DATA, &limit);
  box->data_limit_bytes = box->data_allowance_bytes = 0;
}

}  // namespace smla
