// SPDX-License-Identifier: Apache-2.0
// The worker's own side: descriptors, the request loop, and the answers.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/cuda/gpu_probe.h"
#include "harness/worker.h"
#include "harness/worker/blackbox.h"
#include "harness/worker/engine.h"
#include "harness/worker/protocol.h"
#include "kernels/plugin.h"
#include "kernels/registry.h"

namespace smla {
namespace {

constexpr int kSocket = 3, kShared = 4;  // where Process puts them
constexpr int kHigh = 900;               // moved here: out of the way of a kernel that closes a number too many

/// A descriptor of ours, and whether it still is.
class OwnDescriptor {
 public:
  explicit OwnDescriptor(int fd) : fd_(fd) { known_ = fstat(fd_, &before_) == 0; }
  int get() const { return fd_; }
  bool intact() const {
    struct stat now;
    return known_ && fstat(fd_, &now) == 0 && now.st_dev == before_.st_dev && now.st_ino == before_.st_ino;
  }

 private:
  int fd_;
  bool known_;
  struct stat before_;
};

int lifted(int fd) {
  int high = fcntl(fd, F_DUPFD_CLOEXEC, kHigh);
  if (high < 0) high = fcntl(fd, F_DUPFD_CLOEXEC, fd + 1);  // a low RLIMIT_NOFILE
  close(fd);
  return high;
}

/// Ends this process, and what the kernel forked, as soon as the parent is gone: even out of an endless loop. PR_SET_PDEATHSIG would be bound to the
/// parent's THREAD that started us, and would spare the children.
void die_with_parent(int socket) {
  std::thread([socket] {
    pollfd hangup{socket, 0, 0};  // POLLHUP alone: the parent is gone, not merely done sending
    while (poll(&hangup, 1, -1) < 0 && errno == EINTR) {}
    if (hangup.revents & POLLHUP) kill(0, SIGKILL);
  }).detach();
}

/// Ends what a kernel left running. Orphans of its children come to us (PR_SET_CHILD_SUBREAPER), daemons in a session of their own too.
void end_children() {
  bool any = true;
  for (int generation = 0; any && generation < 100; ++generation) {
    any = false;
    std::error_code unreadable;  // a kernel may have lowered the limit of descriptors
    for (const auto& entry : std::filesystem::directory_iterator("/proc", unreadable)) {
      std::ifstream stat(entry.path() / "stat");
      std::string text;
      std::getline(stat, text);
      const size_t paren = text.rfind(')');  // the name before it may hold anything
      int parent = 0;
      if (paren == text.npos || std::sscanf(text.c_str() + paren + 1, " %*c %d", &parent) != 1 || parent != getpid()) continue;
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      any |= kill(pid, SIGKILL) == 0;
      waitpid(pid, nullptr, __WALL);  // in vain where a kernel ignores SIGCHLD
    }
  }
}

/// The next line, or false at the end of the stream.
bool read_line(int socket, std::string& buffer, std::string& line) {
  size_t end;
  while ((end = buffer.find('\n')) == buffer.npos) {
    if (buffer.size() > kMaxLineBytes) return false;
    char chunk[65536];
    ssize_t n = read(socket, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    buffer.append(chunk, static_cast<size_t>(n));
  }
  line.assign(buffer, 0, end);
  buffer.erase(0, end + 1);
  return true;
}

bool write_line(int socket, std::string line) {
  line += '\n';
  for (size_t done = 0; done < line.size();) {
    ssize_t n = send(socket, line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

/// The judged rows' part of the shared memory while one request is served: the parent resizes it between requests.
class JudgedRows {
 public:
  explicit JudgedRows(int shared) {
    struct stat info {};
    if (fstat(shared, &info) == 0 && info.st_size <= kRowsOffset) return;
    bytes_ = static_cast<size_t>(info.st_size);
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);  // fails for a descriptor that is gone, too
    if (at == MAP_FAILED) why_ = strerror(errno);
    else at_ = static_cast<std::byte*>(at);
  }
  ~JudgedRows() {
    if (at_) munmap(at_, bytes_);
  }
  JudgedRows(const JudgedRows&) = delete;
  std::byte* data() const { return at_ ? at_ + kRowsOffset : nullptr; }
  int64_t bytes() const { return at_ ? static_cast<int64_t>(bytes_) - kRowsOffset : 0; }
  const char* why() const { return why_; }  // none is there

 private:
  std::byte* at_ = nullptr;
  size_t bytes_ = 0;
  const char* why_ = "the shared memory is too small";
};

/// Of the plug-in, or the whole built-in table. Throws UsageError.
std::vector<const smla_kernel*> kernels_of(const std::string& plugin) {
  std::vector<const smla_kernel*> found;
  if (plugin.empty())
    for (const KernelEntry& entry : kernels()) found.push_back(entry.kernel);
  else
    for (const smla_kernel* kernel : Plugin(plugin).kernels()) found.push_back(kernel);
  return found;
}

using Body = decltype(Reply::body);

Body serve(Engine& engine, const Request& request, int shared) {
  try {
    if (auto* r = std::get_if<SupportsRequest>(&request)) return engine.supports(*r);
    if (auto* r = std::get_if<TimeRequest>(&request)) return engine.time(*r);
    const auto& r = std::get<RunRequest>(request);
    const int64_t rows = std::ssize(r.tokens) * r.c.h_q, out_count = rows * r.c.d_v;
    JudgedRows judged(shared);
    if (judged.bytes() < judged_lse_offset(out_count) - kRowsOffset + rows * int64_t{sizeof(float)})
      return Refused{fmt::format("the judged rows cannot be mapped: {}", judged.why())};
    return engine.run(r, judged.data());
  } catch (const UsageError& error) { return Refused{error.what()}; }
}

/// Loads them. What that changed in this process is put back; throws UsageError if it cannot be.
std::vector<const smla_kernel*> loaded(const std::function<std::vector<const smla_kernel*>()>& load) {
  ProcessState before;
  const FloatEnvironment ours;
  std::vector<const smla_kernel*> kernels = load();
  before.put_back();
  if (const std::string changes = before.put_back(); !changes.empty()) throw UsageError("the library changes the process that loads it: " + changes);
  return kernels;
}

void forbid_core_dumps() {
  rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

}  // namespace

int worker_main(int argc, char** argv) {
  std::string plugin;
  int gpu = -1;
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    if (arg.starts_with("--plugin=")) plugin = arg.substr(9);
    else if (int n; arg.starts_with("--gpu-info=") && std::from_chars(arg.data() + 11, arg.data() + arg.size(), n).ec == std::errc())
      return print_gpu_info(n);
    else if (arg.starts_with("--gpu-peaks=") && std::from_chars(arg.data() + 12, arg.data() + arg.size(), n).ec == std::errc())
      return print_gpu_peaks(n);
    else if (arg.starts_with("--gpu=")) std::from_chars(arg.data() + 6, arg.data() + arg.size(), gpu);
  }
  return serve_worker(gpu, [&] { return kernels_of(plugin); });
}

int serve_worker(int gpu, const std::function<std::vector<const smla_kernel*>()>& load) {
  struct stat info;
  if (fstat(kSocket, &info) != 0 || !S_ISSOCK(info.st_mode) || fstat(kShared, &info) != 0)
    throw UsageError("worker: started by the other verbs, not by hand");

  const OwnDescriptor out(STDOUT_FILENO), err(STDERR_FILENO), socket(lifted(kSocket)), shared(lifted(kShared));
  void* page = mmap(nullptr, static_cast<size_t>(kRowsOffset), PROT_READ | PROT_WRITE, MAP_SHARED, shared.get(), 0);
  if (page == MAP_FAILED) return kExitBadRequest;
  open_blackbox(page);
  forbid_core_dumps();
  watch_for_faults();
  die_with_parent(socket.get());
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  setvbuf(stdout, nullptr, _IOLBF, 0);  // a kernel's last words survive its crash

  set_stage("loading kernels");
  Reply reply;
  std::unique_ptr<Engine> engine;
  try {
    engine = std::make_unique<Engine>(loaded(load), gpu);
    reply.body = Ready{engine->list()};
  } catch (const UsageError& error) { reply.body = Refused{error.what()}; }
  set_stage("");
  if (!write_line(socket.get(), encode(reply))) return kExitLostSocket;

  for (std::string buffer, line; engine && read_line(socket.get(), buffer, line);) {
    Request request;
    try {
      request = decode_request(line, &reply.number);
    } catch (const ProtocolError& error) {
      std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
      return kExitBadRequest;
    }
    blackbox().kernel_spent_ns = 0;
    blackbox().begun = reply.number;
    worker_timeline().take();
    reply.body = serve(*engine, request, shared.get());
    if (auto* run = std::get_if<RunReply>(&reply.body)) run->spans = worker_timeline().take();
    set_stage("flushing what was printed", Turn::kernel);  // a thread of the kernel's may hold a stream for ever
    std::fflush(nullptr);
    set_stage("answering");
    if (!out.intact() || !err.intact() || !shared.intact()) {
      const auto blame = [](auto* answer) {
        if (answer) answer->status = Status::crash, answer->detail = "closed or replaced a descriptor that is not the kernel's own";
      };
      blame(std::get_if<RunReply>(&reply.body));
      blame(std::get_if<TimeReply>(&reply.body));
      reply.retire = true;
    }
    reply.retire |= engine->spoilt();
    if (reply.retire) end_children();
    if (!socket.intact() || !write_line(socket.get(), encode(reply))) return kExitLostSocket;
    set_stage("");
  }
  return 0;
}

}  // namespace smla
