// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "harness/exit_status.h"

extern char** environ;

namespace smla {
namespace {

using std::chrono::steady_clock;

constexpr int kChildSocket = 3, kChildShared = 4;
constexpr int kLowestOwn = 16;  // ours stay clear of the numbers that the child's are moved to
constexpr auto kFarewell = std::chrono::seconds(2);
constexpr auto kStuck = std::chrono::seconds(30);  // a process that a driver holds may not die of SIGKILL: it is left behind, not waited for

int check(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}
void check_spawn(int error, const std::string& what) {
  if (error) throw std::system_error(error, std::generic_category(), what);
}

struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    check_spawn(posix_spawn_file_actions_init(&actions), "posix_spawn");
    check_spawn(posix_spawnattr_init(&attributes), "posix_spawn");
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
};

Descriptor lifted(int fd) {
  Descriptor low(fd);
  return Descriptor(check(fcntl(fd, F_DUPFD_CLOEXEC, kLowestOwn), "dup"));
}
std::pair<Descriptor, Descriptor> make_pipe() {  // read end, write end
  int ends[2];
  check(pipe2(ends, O_CLOEXEC), "pipe2");
  Descriptor read_end = lifted(ends[0]), write_end = lifted(ends[1]);
  check(fcntl(read_end.get(), F_SETFL, O_NONBLOCK), "fcntl");
  return {std::move(read_end), std::move(write_end)};
}
std::pair<Descriptor, Descriptor> make_socket() {  // ours, the child's
  int ends[2];
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
  Descriptor ours = lifted(ends[0]), theirs = lifted(ends[1]);
  check(fcntl(ours.get(), F_SETFL, O_NONBLOCK), "fcntl");
  return {std::move(ours), std::move(theirs)};
}

enum class Read { some, nothing, shut };
/// One read of a non-blocking descriptor, appended to `text`.
Read read_some(int fd, std::string& text) {
  char chunk[65536];
  ssize_t n;
  while ((n = read(fd, chunk, sizeof chunk)) < 0 && errno == EINTR) {}
  if (n > 0) text.append(chunk, static_cast<size_t>(n));
  return n > 0 ? Read::some : n < 0 && errno == EAGAIN ? Read::nothing : Read::shut;
}

int left_ms(steady_clock::time_point deadline) {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}
int Descriptor::release() { return std::exchange(fd_, -1); }

std::string to_string(const Exit& exit) {
  if (!exit.signalled) return fmt::format("exited with {}", exit.code);
  const char* name = sigabbrev_np(exit.code);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", exit.code);
}

int64_t peak_bytes(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  int64_t kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> kib;
  return kib * 1024;
}

Process::Process(const std::string& program, const std::vector<std::string>& args, int shared) {
  constexpr rlim_t kLeastFiles = 64;
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kLeastFiles)
    throw CannotStart(fmt::format("a worker needs {} file descriptors, ulimit -n allows {}", kLeastFiles, files.rlim_cur));
  auto [socket, child_socket] = make_socket();
  auto [out, child_out] = make_pipe();
  auto [err, child_err] = make_pipe();
  Descriptor child_shared(check(fcntl(shared, F_DUPFD_CLOEXEC, kLowestOwn), "dup"));

  SpawnPlan plan;
  posix_spawn_file_actions_addopen(&plan.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (auto [from, to] : {std::pair{child_out.get(), STDOUT_FILENO},
                          {child_err.get(), STDERR_FILENO},
                          {child_socket.get(), kChildSocket},
                          {child_shared.get(), kChildShared}})
    posix_spawn_file_actions_adddup2(&plan.actions, from, to);
  posix_spawn_file_actions_addclosefrom_np(&plan.actions, kChildShared + 1);  // the kernel shall not even see what else is open here
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGXFSZ}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigmask(&plan.attributes, &none);
  posix_spawnattr_setsigdefault(&plan.attributes, &defaults);
  posix_spawnattr_setpgroup(&plan.attributes, 0);
  posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  group_.emplace([&] {
    check_spawn(posix_spawnp(&pid_, program.c_str(), &plan.actions, &plan.attributes, argv.data(), environ), program);
    return pid_;
  });
  pidfd_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) {
    int pidfd_error = errno;
    kill();
    throw std::system_error(pidfd_error, std::generic_category(), "pidfd_open");
  }
  socket_ = std::move(socket);
  out_ = std::move(out);
  err_ = std::move(err);
}

Process::~Process() {
  if (pid_ < 0 || reaped_) return;
  shutdown(socket_.get(), SHUT_WR);
  wait_end(kFarewell);
  kill();
}

bool Process::send(const std::string& line, steady_clock::time_point deadline) {
  const std::string message = line + '\n';
  for (size_t done = 0; done < message.size();) {
    ssize_t n = ::send(socket_.get(), message.data() + done, message.size() - done, MSG_NOSIGNAL);
    if (n > 0) done += static_cast<size_t>(n);
    else if (errno == EAGAIN) {
      std::array<pollfd, 2> polls{{{socket_.get(), POLLOUT, 0}, {pidfd_.get(), POLLIN, 0}}};
      if (poll(polls.data(), polls.size(), left_ms(deadline)) == 0 || polls[1].revents) return false;
    } else if (errno != EINTR) return false;
  }
  return true;
}

void Process::drain() {
  for (auto [pipe, text] : {std::pair{&out_, &out_text}, {&err_, &err_text}}) {
    // bounded: a stray that keeps printing may not keep us here
    for (int i = 0; i < 64 && *pipe && read_some(pipe->get(), *text) == Read::some; ++i) {}
    if (text->size() > kTailBytes) text->erase(0, text->size() - kTailBytes);
  }
}

Process::Event Process::receive(std::string* line, size_t max_bytes, steady_clock::time_point deadline) {
  size_t searched = 0;
  bool ended_seen = false;
  for (;;) {
    if (size_t end = received_.find('\n', searched); end != received_.npos) {
      line->assign(received_, 0, end);
      received_.erase(0, end + 1);
      drain();
      return Event::line;
    }
    searched = received_.size();
    if (searched > max_bytes) return Event::flood;
    if (ended_seen) return drain(), Event::exited;
    std::array<pollfd, 4> polls{{{socket_.get(), POLLIN, 0}, {out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}, {pidfd_.get(), POLLIN, 0}}};
    int ready = poll(polls.data(), polls.size(), left_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return drain(), Event::deadline;
    if (polls[1].revents && !(polls[1].revents & POLLIN)) out_ = Descriptor();  // the child closed it: poll would return at once for ever
    if (polls[2].revents && !(polls[2].revents & POLLIN)) err_ = Descriptor();
    drain();
    ended_seen = polls[3].revents;
    if (ended_seen)
      while (received_.size() <= max_bytes && read_some(socket_.get(), received_) == Read::some) {}  // a whole answer may precede the end
    else if (polls[0].revents && read_some(socket_.get(), received_) == Read::shut)
      return wait_end(std::chrono::seconds(1)) ? Event::exited : Event::closed;  // a dying child's socket shuts a little before its end shows
  }
}

bool Process::wait_end(steady_clock::duration patience) const {
  auto deadline = steady_clock::now() + patience;
  pollfd end{pidfd_.get(), POLLIN, 0};
  int ready;
  while ((ready = poll(&end, 1, left_ms(deadline))) < 0 && errno == EINTR) {}
  return ready > 0;
}

int64_t Process::cpu_ns() const {
  clockid_t clock;
  timespec used{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
}

bool Process::ended() const {
  siginfo_t info{};
  return reaped_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid_;
}

Exit Process::kill() {
  if (reaped_) return exit_;
  // Not reaped yet, so neither the process nor its group can be somebody else's by now.
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  reaped_ = true;
  const bool stuck = pidfd_ && !wait_end(kStuck);
  sent_ = group_->signal_sent();
  group_.reset();
  if (stuck) return exit_ = {true, SIGKILL};
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
  exit_ = {WIFSIGNALED(status), WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)};
  drain();
  return exit_;
}

}  // namespace smla
