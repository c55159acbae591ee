// SPDX-License-Identifier: Apache-2.0
// A plug-in of kernels that misbehave, each in one way and named after it. They answer zeros otherwise: nobody judges their numbers.
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cfenv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/api/smla_kernel.h"

namespace {

/// Everything a behaviour may touch; it returns what launch returns.
struct Call {
  const smla_problem& p;
  const smla_buffers& b;
  char* out() const { return static_cast<char*>(b.out); }
  char* lse() const { return static_cast<char*>(b.lse); }
  char* kv() const { return static_cast<char*>(const_cast<void*>(b.kv)); }
  int64_t out_bytes() const { return p.b * p.out_stride_bytes[0]; }
  int64_t row_bytes() const { return p.kv_format == SMLA_KV_FP8_656 ? 656 : int64_t{2} * p.d_qk; }
  /// Writes one row of out at a time, inside the rows only.
  template <class F>
  void each_out_row(F&& f) const {
    for (int i = 0; i < p.b; ++i)
      for (int j = 0; j < p.s_q; ++j)
        for (int h = 0; h < p.h_q; ++h) f(out() + i * p.out_stride_bytes[0] + j * p.out_stride_bytes[1] + h * p.out_stride_bytes[2]);
  }
};

void answer(const Call& c, int value = 0) {
  c.each_out_row([&](char* row) { std::memset(row, value, size_t{2} * static_cast<size_t>(c.p.d_v)); });
  for (int i = 0; i < c.p.b; ++i)
    for (int j = 0; j < c.p.s_q; ++j)
      std::memset(c.lse() + i * c.p.lse_stride_bytes[0] + j * c.p.lse_stride_bytes[1], value, size_t{4} * static_cast<size_t>(c.p.h_q));
}

thread_local const char* last_error_text = "";
volatile char sink;  // what is read must not be optimised away

// Each: (call, workspace) -> result.
int healthy(const Call& c) { return answer(c), 0; }
int aborts(const Call&) {
  std::fprintf(stderr, "first words\nhostile: giving up\n");
  std::abort();
}
int segv(const Call& c) {
  int* volatile nowhere = reinterpret_cast<int*>(16);
  *nowhere = 1;
  return healthy(c);
}
int loops(const Call&) {
  for (;;) sink = sink + 1;
}
int sleeps(const Call&) {
  for (;;) pause();
}
int error(const Call&) {
  last_error_text = "tile count 0 is not supported";
  return 7;
}
int returns_enomem(const Call&) {
  last_error_text = "no room for its tiles";
  return -ENOMEM;
}
int error_lines(const Call&) {
  last_error_text = "tile\n\x1b[31m| 0 |\r\xff is not supported";
  return 7;
}
int write_inputs_and_fail(const Call& c) {
  const_cast<int32_t*>(c.b.indices)[0] ^= 1;
  return error(c);
}
int silent_error(const Call&) {
  last_error_text = "";
  return -3;
}
int write_past_out(const Call& c) {
  c.out()[c.out_bytes() + 5] = 1;
  return healthy(c);
}
int write_before_out(const Call& c) {
  c.out()[-2] = 1;
  return healthy(c);
}
int write_far_past_out(const Call& c) {
  std::memset(c.out() + c.out_bytes(), 0, 1 << 16);
  return healthy(c);
}
int write_gap(const Call& c) {
  std::memset(c.out(), 0, static_cast<size_t>(c.out_bytes()));  // as if out were dense
  return healthy(c);
}
int write_inputs(const Call& c) {
  const_cast<int32_t*>(c.b.indices)[3] = 0;
  const_cast<int32_t*>(c.b.indices)[2] = 0;
  return healthy(c);
}
int write_inputs_and_restore(const Call& c) {
  volatile int32_t& entry = const_cast<int32_t*>(c.b.indices)[5];
  const int32_t before = entry;
  entry = -1;
  entry = before;
  return healthy(c);
}
int write_pool(const Call& c) {
  c.kv()[c.row_bytes() + 1] = static_cast<char>(c.kv()[c.row_bytes() + 1] ^ 1);
  return healthy(c);
}
int write_slot_minus_1(const Call& c) {
  c.kv()[-1] = 0;
  return healthy(c);
}
int write_past_workspace(const Call& c, char* workspace) {
  workspace[64] = 1;
  return healthy(c);
}
int print_stdout(const Call& c) {
  std::printf("ok n=1 status=pass\nhello from a kernel");
  return healthy(c);
}
int flood_stdout(const Call& c) {
  for (int i = 0; i < 200000; ++i) std::puts("the quick brown fox jumps over the lazy dog");
  return healthy(c);
}
int throw_exception(const Call&) { throw std::runtime_error("no such tile"); }
int throw_int(const Call&) { throw 42; }
int exit3(const Call&) { std::exit(3); }
int quick_exit0(const Call&) { _exit(0); }
int forks(const Call& c) {
  if (fork() == 0) return healthy(c);  // the child returns into the harness
  return healthy(c);
}
int fork_stray(const Call& c) {
  if (fork() == 0)
    for (;;) pause();
  return healthy(c);
}
int fork_setsid(const Call& c) {  // a daemon: a session of its own, and no parent that could be asked
  if (const pid_t child = fork()) {
    waitpid(child, nullptr, 0);
    return healthy(c);
  }
  setsid();
  if (fork() == 0)
    for (;;) pause();
  _exit(0);
}
int daemon_die(const Call&) {  // nobody is left to ask for the daemon, which is another program by now
  if (const pid_t child = fork()) {
    waitpid(child, nullptr, 0);
    std::abort();
  }
  setsid();
  if (fork() == 0) execlp("sleep", "sleep", "1000", nullptr);
  _exit(0);
}
int thread_stray(const Call& c) {
  std::thread([] {
    for (;;) pause();
  }).detach();
  return healthy(c);
}
int fork_and_wait(const Call& c) {
  if (pid_t child = fork()) waitpid(child, nullptr, 0);
  else _exit(0);
  return healthy(c);
}
int fork_die(const Call&) {  // the stray holds every descriptor open while the worker is gone
  if (fork() == 0)
    for (;;) pause();
  std::abort();
}
/// Memory that is really taken: the compiler may leave out an allocation that nobody reads.
void take(char* memory, size_t bytes) {
  std::memset(memory, 1, bytes);
  for (size_t i = 0; i < bytes; i += 4096) sink = memory[i];
}
int leak_throw(const Call& c) {  // 10 GB by operator new
  for (int i = 0; i < 160; ++i) take(new char[64 << 20], 64 << 20);
  return healthy(c);
}
int leak_abort(const Call& c) {  // 10 GB by malloc, unchecked
  for (int i = 0; i < 160; ++i) {
    char* p = static_cast<char*>(std::malloc(64 << 20));
    if (!p) std::abort();
    take(p, 64 << 20);
  }
  return healthy(c);
}
int leak_some(const Call& c) {  // less than the limit, more than is overlooked
  take(new char[400 << 20], 400 << 20);
  return healthy(c);
}
int close_fds(const Call& c) {
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  return healthy(c);
}
int close_stdout(const Call& c) {
  close(1);
  return healthy(c);
}
int write_fds(const Call& c) {  // garbage into whatever is open
  for (int fd = 3; fd < 1024; ++fd)
    if (write(fd, "garbage\n", 8) < 0) continue;
  return healthy(c);
}
int stack_overflow(const Call& c);
int overflow_step(const Call& c, int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : overflow_step(c, depth + 1) + frame[0];
}
int stack_overflow(const Call& c) { return overflow_step(c, 1); }
int read_slot_minus_1(const Call& c) {
  sink = c.kv()[-c.row_bytes()];
  return healthy(c);
}
int read_slot_num_slots(const Call& c) {
  sink = c.kv()[c.p.num_pages * c.p.page_stride_bytes];
  return healthy(c);
}
int read_past_indices(const Call& c) {  // the rest of a last tile that the list does not have
  sink = static_cast<char>(c.b.indices[c.p.b * c.p.indices_stride_bytes[0] / 4 + 63]);
  return healthy(c);
}
int read_everything_selected(const Call& c) {  // every row that an index names: must not fault, in whatever memory
  const int64_t stride = c.p.indices_stride_bytes[1] / 4;
  for (int64_t t = 0; t < int64_t{c.p.b} * c.p.s_q; ++t)
    for (int i = 0; i < c.p.topk; ++i)
      if (int64_t slot = c.b.indices[t * stride + i]; slot >= 0 && slot < c.p.num_slots) {
        const char* row = c.kv() + slot / c.p.page_size * c.p.page_stride_bytes + slot % c.p.page_size * c.row_bytes();
        for (int64_t k = 0; k < c.row_bytes(); ++k) sink = row[k];
      }
  return healthy(c);
}
int skip_one_element(const Call& c) {
  uint16_t before;
  char* last = c.out() + c.out_bytes() - 2;
  std::memcpy(&before, last, 2);
  answer(c);
  std::memcpy(last, &before, 2);
  return 0;
}
int skip_lse(const Call& c) {
  c.each_out_row([&](char* row) { std::memset(row, 0, size_t{2} * static_cast<size_t>(c.p.d_v)); });
  return 0;
}
int nothing(const Call&) { return 0; }
int nondeterministic(const Call& c) {
  static int calls = 0;
  return answer(c, ++calls), 0;
}
/// The right answer where no key is valid.
void answer_nothing_attended(const Call& c) {
  answer(c);
  const float none = -INFINITY;
  for (int i = 0; i < c.p.b; ++i)
    for (int j = 0; j < c.p.s_q; ++j)
      for (int h = 0; h < c.p.h_q; ++h) std::memcpy(c.lse() + i * c.p.lse_stride_bytes[0] + j * c.p.lse_stride_bytes[1] + h * 4, &none, sizeof none);
}
int slips_when_timed(const Call& c) {  // right at first, then wrong at every second one that is timed: before each goes one that is not
  static int calls = 0;
  usleep(1000);
  answer_nothing_attended(c);
  if (++calls > 20 && calls % 4 < 2) c.out()[0] = 1;
  return 0;
}
int every_other(const Call& c) {  // does the work of two calls at once
  static int calls = 0;
  if (++calls % 2 == 0) answer_nothing_attended(c);
  return 0;
}
int wrong_first(const Call& c) {  // the first launch of its process, and no other
  static bool called = false;
  answer_nothing_attended(c);
  if (!called) std::memset(c.out(), 0x40, 2);
  called = true;
  return 0;
}
int copies_workspace(const Call& c, char* workspace) { return answer(c, workspace[0]), 0; }
int slow(const Call& c) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return healthy(c);
}
int stop_worker(const Call& c) {  // for tests that act on the worker from outside: says who it is, then waits
  std::fprintf(stderr, "pid %d\n", getpid());
  return sleeps(c);
}

int wait_for_file(const Call& c) {  // for tests that stop a run and go on with it: FILE.awaited says that the time has come
  const char* path = std::getenv("SMLA_HOSTILE_FILE");
  if (path) close(open((std::string(path) + ".awaited").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  while (!path || access(path, F_OK) != 0) usleep(1000);
  return healthy(c);
}
int answer_rounding(const Call& c) { return answer(c, std::fegetround() == FE_TONEAREST ? 0 : 1), 0; }

int fault_late(const Call& c) {  // in a thread that outlives the call
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    int* volatile nowhere = reinterpret_cast<int*>(16);
    *nowhere = 1;
  }).detach();
  return healthy(c);
}

int lower_limits(const Call& c) {
  constexpr rlimit none{0, 0};
  for (const auto resource : {RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_AS}) setrlimit(resource, &none);
  return healthy(c);
}
int lower_memory(const Call& c) {  // softly: nothing stops it from being put back
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = 0;
  setrlimit(RLIMIT_AS, &limit);
  return healthy(c);
}
int leave_alarm(const Call& c) {
  alarm(1000);
  return healthy(c);
}
int leave_profiler(const Call& c) {
  constexpr itimerval later{{0, 0}, {1000, 0}};
  setitimer(ITIMER_PROF, &later, nullptr);
  return healthy(c);
}
int leave_timer(const Call& c) {
  sigevent how{};
  how.sigev_notify = SIGEV_SIGNAL;
  how.sigev_signo = SIGUSR2;
  timer_t timer;
  constexpr itimerspec later{{0, 0}, {1000, 0}};
  if (timer_create(CLOCK_MONOTONIC, &how, &timer) == 0) timer_settime(timer, 0, &later, nullptr);
  return healthy(c);
}
int fork_unheard(const Call& c) {  // a child whose end sends no signal
  if (syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr) == 0)
    for (;;) pause();
  return healthy(c);
}
int change_schedule(const Call& c) {  // pins its thread to the last core, to run when nobody else wants to
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  for (int core = 0; CPU_COUNT(&cores) > 1; ++core) CPU_CLR(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
  constexpr sched_param none{};
  sched_setscheduler(0, SCHED_BATCH, &none);
  return healthy(c);
}
int answer_schedule(const Call& c) {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  return answer(c, CPU_COUNT(&cores) + sched_getscheduler(0)), 0;
}
int change_rounding(const Call& c) {  // whoever computes next must not notice
  std::fesetround(FE_UPWARD);
  return healthy(c);
}
sigjmp_buf before_fault;
int catch_faults(const Call& c) {  // reads far beyond its tensors and goes on
  for (int signal : {SIGSEGV, SIGBUS}) std::signal(signal, [](int) { siglongjmp(before_fault, 1); });
  if (sigsetjmp(before_fault, 1) == 0)
    for (const char* at = c.kv();; at -= 512) sink = *at;
  return healthy(c);
}
int leak_mappings(const Call& c) {  // until there is none left, of little memory
  for (int i = 0; i < 1 << 20; ++i)
    if (mmap(nullptr, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) break;
  return healthy(c);
}
int leak_descriptors(const Call& c) {
  while (dup(2) >= 0) {}
  return healthy(c);
}
int signal_parent(const Call& c) {
  kill(getppid(), SIGTERM);
  return healthy(c);
}
int signal_parent_from_child(const Call& c) {
  const pid_t parent = getppid();
  if (const pid_t child = fork()) return waitpid(child, nullptr, 0), healthy(c);
  kill(parent, SIGUSR1);
  usleep(200000);  // one that is gone at once could be anybody's
  _exit(0);
}
int truncate_fds(const Call& c) {  // what the harness shares with its parent
  for (int fd = 3; fd < 1024; ++fd)
    if (ftruncate(fd, 8192) < 0) continue;
  return healthy(c);
}
void steal_from_sockets(size_t bytes) {  // so many at a time, once where it is one
  for (int fd = 3; fd < 1024; ++fd) {
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) continue;
    std::thread([fd, bytes] {
      char stolen[256];
      while (read(fd, stolen, bytes) > 0 && bytes > 1) {}
    }).detach();
  }
}
int steal_requests(const Call& c) { return steal_from_sockets(256), healthy(c); }
int steal_a_byte(const Call& c) { return steal_from_sockets(1), healthy(c); }
char state_of_caller(int self) {
  char text[512] = "";
  const int fd = open(("/proc/self/task/" + std::to_string(self) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (read(fd, text, sizeof text - 1) < 0) return 0;
  close(fd);
  const char* paren = std::strrchr(text, ')');
  return paren ? paren[2] : 0;
}
int stop_when_busy(const Call& c) {  // once its caller has waited, and then runs for a while
  std::thread([caller = getpid()] {
    while (state_of_caller(caller) != 'S') usleep(1000);
    for (int running = 0; running < 10; usleep(1000)) running = state_of_caller(caller) == 'R' ? running + 1 : 0;
    kill(caller, SIGSTOP);
  }).detach();
  return healthy(c);
}
int hold_stdout(const Call& c) {  // a thread that is stuck inside of stdio
  std::thread([] {
    flockfile(stdout);
    for (;;) pause();
  }).detach();
  usleep(50000);
  return healthy(c);
}
int move_away(const Call& c) { return chdir("/") == 0 ? healthy(c) : 1; }

int needs_file(const Call& c) {  // aborts unless the file that the environment names is there: for tests of --retry
  const char* path = std::getenv("SMLA_HOSTILE_FILE");
  if (!path || access(path, F_OK) != 0) std::abort();
  return healthy(c);
}

struct Behaviour {
  const char* name;
  int (*launch)(const Call&);
  int (*launch_with_workspace)(const Call&, char*) = nullptr;
  int64_t workspace_bytes = 0;
};
constexpr int64_t kTooMuch = int64_t{1} << 50;
const Behaviour kBehaviours[] = {
    {"healthy", healthy},
    {"abort", aborts},
    {"segv", segv},
    {"loop", loops},
    {"sleep", sleeps},
    {"error", error},
    {"returns_enomem", returns_enomem},
    {"error_lines", error_lines},
    {"silent_error", silent_error},
    {"write_past_out", write_past_out},
    {"write_before_out", write_before_out},
    {"write_far_past_out", write_far_past_out},
    {"write_gap", write_gap},
    {"write_inputs", write_inputs},
    {"write_inputs_and_fail", write_inputs_and_fail},
    {"write_inputs_and_restore", write_inputs_and_restore},
    {"write_pool", write_pool},
    {"write_slot_minus_1", write_slot_minus_1},
    {"write_past_workspace", nullptr, write_past_workspace, 64},
    {"print_stdout", print_stdout},
    {"flood_stdout", flood_stdout},
    {"throw_exception", throw_exception},
    {"throw_int", throw_int},
    {"exit3", exit3},
    {"quick_exit0", quick_exit0},
    {"fork", forks},
    {"fork_stray", fork_stray},
    {"fork_setsid", fork_setsid},
    {"daemon_die", daemon_die},
    {"thread_stray", thread_stray},
    {"fork_and_wait", fork_and_wait},
    {"fork_die", fork_die},
    {"leak_throw", leak_throw},
    {"leak_abort", leak_abort},
    {"leak_some", leak_some},
    {"close_fds", close_fds},
    {"close_stdout", close_stdout},
    {"write_fds", write_fds},
    {"stack_overflow", stack_overflow},
    {"read_slot_minus_1", read_slot_minus_1},
    {"read_slot_num_slots", read_slot_num_slots},
    {"read_past_indices", read_past_indices},
    {"read_everything_selected", read_everything_selected},
    {"skip_one_element", skip_one_element},
    {"skip_lse", skip_lse},
    {"nothing", nothing},
    {"nondeterministic", nondeterministic},
    {"slips_when_timed", slips_when_timed},
    {"every_other", every_other},
    {"wrong_first", wrong_first},
    {"wrong_first_undeclared", wrong_first},
    {"copies_workspace", nullptr, copies_workspace, 256},
    {"slow", slow},
    {"stop_worker", stop_worker},
    {"needs_file", needs_file},
    {"wait_for_file", wait_for_file},
    {"answer_rounding", answer_rounding},
    {"fault_late", fault_late},
    {"lower_limits", lower_limits},
    {"lower_memory", lower_memory},
    {"leave_alarm", leave_alarm},
    {"leave_profiler", leave_profiler},
    {"leave_timer", leave_timer},
    {"fork_unheard", fork_unheard},
    {"change_schedule", change_schedule},
    {"answer_schedule", answer_schedule},
    {"change_rounding", change_rounding},
    {"catch_faults", catch_faults},
    {"leak_mappings", leak_mappings},
    {"leak_descriptors", leak_descriptors},
    {"signal_parent", signal_parent},
    {"signal_parent_from_child", signal_parent_from_child},
    {"truncate_fds", truncate_fds},
    {"steal_requests", steal_requests},
    {"steal_a_byte", steal_a_byte},
    {"stop_when_busy", stop_when_busy},
    {"hold_stdout", hold_stdout},
    {"move_away", move_away},
    {"huge_workspace", healthy, nullptr, kTooMuch},
    {"negative_workspace", healthy, nullptr, -5},
    {"declines", healthy},
    {"abort_in_supports", healthy},
};

int contract(const smla_kernel* self, const smla_problem*, smla_contract* out) {
  for (const char* name : {"slips_when_timed", "wrong_first"}) out->deterministic |= std::strcmp(self->name, name) == 0;
  return 0;
}
int supports(const smla_kernel* self, const smla_problem*, char* reason, uint64_t reason_bytes) {
  if (std::strcmp(self->name, "abort_in_supports") == 0) std::abort();
  if (std::strcmp(self->name, "declines") != 0) return 1;
  std::snprintf(reason, reason_bytes, "declines everything");
  return 0;
}
int64_t workspace_bytes(const smla_kernel* self, const smla_problem*) { return static_cast<const Behaviour*>(self->user)->workspace_bytes; }
int launch(const smla_kernel* self, const smla_problem* problem, const smla_buffers* buffers, void* workspace, void*) {
  const auto& behaviour = *static_cast<const Behaviour*>(self->user);
  const Call call{*problem, *buffers};
  return behaviour.launch ? behaviour.launch(call) : behaviour.launch_with_workspace(call, static_cast<char*>(workspace));
}
void last_error(const smla_kernel*, char* text, uint64_t text_bytes) { std::snprintf(text, text_bytes, "%s", last_error_text); }

/// SMLA_HOSTILE_LOAD=slow|abort|exit|steal: misbehave while being loaded.
struct Load {
  Load() {
    const char* how = std::getenv("SMLA_HOSTILE_LOAD");
    if (!how) return;
    if (std::strcmp(how, "slow") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    if (std::strcmp(how, "abort") == 0) std::abort();
    if (std::strcmp(how, "exit") == 0) _exit(5);
    if (std::strcmp(how, "steal") == 0) steal_from_sockets(256);
  }
} load;

std::vector<smla_kernel> make_kernels() {
  std::vector<smla_kernel> kernels;
  for (const Behaviour& behaviour : kBehaviours) {
    smla_kernel kernel = {};
    kernel.struct_size = sizeof kernel;
    kernel.device = SMLA_DEVICE_CPU;
    kernel.name = behaviour.name;
    kernel.description = behaviour.launch == stop_when_busy ? "stops whoever comes next" : "misbehaves";
    kernel.user = &behaviour;
    kernel.contract = contract;
    kernel.supports = supports;
    kernel.workspace_bytes = workspace_bytes;
    kernel.launch = launch;
    kernel.last_error = last_error;
    kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace

extern "C" SMLA_EXPORT const smla_library* smla_get_library(void) {
  static const std::vector<smla_kernel> kernels = make_kernels();
  static const std::vector<const smla_kernel*> pointers = [] {
    std::vector<const smla_kernel*> p;
    for (const smla_kernel& kernel : kernels) p.push_back(&kernel);
    return p;
  }();
  static const smla_library library = {SMLA_ABI_VERSION, sizeof library, static_cast<int32_t>(pointers.size()), 0, pointers.data()};
  return &library;
}
