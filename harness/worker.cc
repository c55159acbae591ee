// SPDX-License-Identifier: Apache-2.0
#include "harness/worker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>
#include <system_error>

#include "harness/interrupt.h"
#include "harness/progress.h"
#include "harness/python/python_worker.h"
#include "harness/worker/blackbox.h"
#include "harness/worker/process.h"
#include "harness/worker/protocol.h"
#include "reports/text.h"

namespace smla {
namespace {

using std::chrono::steady_clock;

constexpr double kSupportsDeadline_s = 120;
constexpr double kOwnDeadline_s = 1800;  // for what a kernel cannot be blamed for: generating a huge case on a busy machine
constexpr double kTakeUp_s = 10;         // a request that was sent: a worker that waits for it begins at once

steady_clock::time_point in_seconds(double seconds) {
  return steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_since(steady_clock::time_point begin) { return std::chrono::duration<double>(steady_clock::now() - begin).count(); }

/// The last lines of a text, on one line: "a / b / c".
std::string last_lines(std::string_view text, size_t count) {
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() < count) {
    size_t begin = text.rfind('\n') + 1;  // npos + 1 = 0
    if (begin < text.size()) lines.insert(lines.begin(), text.substr(begin));
    text = text.substr(0, begin ? begin - 1 : 0);
  }
  return fmt::format("{}", fmt::join(lines, " / "));
}

/// Which file stands at a path: device, inode, bytes, when it was written (s, ns). Zeros where none does.
using FileState = std::array<int64_t, 5>;
FileState state_of(const std::string& path) {
  struct stat is {};
  if (path.empty() || stat(path.c_str(), &is) != 0) return {};
  return {static_cast<int64_t>(is.st_dev), static_cast<int64_t>(is.st_ino), is.st_size, is.st_mtim.tv_sec, is.st_mtim.tv_nsec};
}
bool same_inode(const FileState& a, const FileState& b) { return a[0] == b[0] && a[1] == b[1]; }

/// What the parent says of a worker that gave no answer.
struct Death {
  Status status;
  std::string detail;
  bool others = false;  // nothing speaks for this kernel's fault: it was not called yet, or a thread faulted that an earlier one may have made
};

std::string sent_text(int signal) { return fmt::format("sent SIG{} to the process that runs the harness", sigabbrev_np(signal)); }

/// Why a worker is waited for no longer.
struct Overdue {
  Status status = Status::timeout;
  std::string why;
  bool others = false;  // it was not the kernel's turn
};
Overdue no_answer(double within_s) { return {Status::timeout, fmt::format("no answer within {:g} s", within_s)}; }

/// How long an answer is waited for. Only what a kernel takes is held against it; the harness's own work may last, but must begin and go on.
class Patience {
 public:
  Patience(const Process& process, uint64_t number, double deadline_s, double idle_s)
      : process_(process), number_(number), deadline_s_(deadline_s), idle_s_(idle_s), take_up_s_(std::clamp(deadline_s, kTakeUp_s / 5, kTakeUp_s)) {}

  steady_clock::time_point next_look() const { return next_look_; }
  /// Nothing: go on waiting.
  std::optional<Overdue> look(const Blackbox& box) {
    const bool begun = box.begun == number_, kernel_runs = begun && box.kernel_since_ns != 0;
    const double waited_s = seconds_since(asked_), spent_s = box.kernel_spent_s(steady_now_ns());
    if (!begun && waited_s >= take_up_s_)
      return Overdue{Status::crash, fmt::format("the request was not taken up within {:g} s: the worker is stopped, or something else reads from the "
                                                "protocol's descriptor",
                                                take_up_s_)};
    if ((kernel_runs && spent_s >= deadline_s_) || waited_s >= deadline_s_ + kOwnDeadline_s) return no_answer(deadline_s_);
    const int64_t cpu_ns = process_.cpu_ns();
    const double busy_s = static_cast<double>(cpu_ns - cpu_before_ns_) / 1e9, idle_s = seconds_since(busy_at_);
    if (kernel_runs || busy_s > kIdle * idle_s) busy_at_ = steady_clock::now(), cpu_before_ns_ = cpu_ns;
    else if (idle_s >= idle_s_) return Overdue{Status::timeout, fmt::format("nothing was done for {:g} s", idle_s_), true};
    next_look_ = in_seconds(begun ? std::max(0.05, std::min(deadline_s_ - spent_s, idle_s_ / 4)) : take_up_s_ - waited_s);
    return {};
  }

 private:
  static constexpr double kIdle = 0.01;  // of one core

  const Process& process_;
  uint64_t number_;
  double deadline_s_, idle_s_, take_up_s_;
  int64_t cpu_before_ns_ = process_.cpu_ns();
  steady_clock::time_point asked_ = steady_clock::now(), busy_at_ = asked_, next_look_ = in_seconds(std::min(deadline_s_, take_up_s_));
};

std::string kernel_of(const Request& request) {
  if (const auto* r = std::get_if<TimeRequest>(&request)) return r->lanes.empty() ? "" : r->lanes.front().kernel;
  return std::visit(
      [](const auto& r) -> std::string {
        if constexpr (requires { r.kernel; }) return r.kernel;
        else return "";
      },
      request);
}

std::string text_of(const char* field, size_t size) { return {field, strnlen(field, size)}; }

/// Adds the request as a whole, which is over now. What the worker says of it counts only inside it.
void note_asking(RunReply& reply, int64_t begin_ns) {
  const int64_t end_ns = steady_now_ns();
  for (Span& span : reply.spans) {
    span.begin_ns = std::max(span.begin_ns, begin_ns);
    span.end_ns = std::min(span.end_ns, end_ns);
  }
  reply.spans.push_back({Activity::ask, begin_ns, end_ns});
}

/// Here a kernel's own words come into this process: from here on they are one line of text, fit for a terminal and a table.
void clean(RunReply& reply) {
  for (std::string* text : {&reply.detail, &reply.guards_detail, &reply.misuse}) *text = clean_text(*text);
}
void clean(TimeReply& reply) {
  reply.detail = clean_text(reply.detail);
  for (LaneReply& lane : reply.lanes) lane.detail = clean_text(lane.detail);
}

}  // namespace

struct Worker::Impl {
  explicit Impl(WorkerOptions o) : options(std::move(o)), shared(memfd_create("smla judged rows", MFD_CLOEXEC)) {
    if (!shared) throw std::system_error(errno, std::generic_category(), "memfd_create");
    if (options.program.empty()) options.program = program_file();
    if (!options.plugin.empty() || !options.python.empty()) own_file = options.python.empty() ? options.plugin : python_file(options.python);
  }

  WorkerOptions options;
  std::string own_file;  // the user's: the plug-in, or the Python file
  FileState loaded{};    // of own_file, when it was loaded first
  Descriptor shared;
  std::unique_ptr<Process> process;
  std::vector<KernelInfo> kernels;
  int starts = 0;
  uint64_t number = 0;
  std::string served;         // the kernel that the running process was asked for last
  std::set<std::string> ran;  // kernels that it was asked to run
  int64_t renewed_peak_bytes = 0;

  // Emptied first: rows of an earlier answer must not be there to be taken for this one's. A living worker keeps its black box: it writes there at
  // any time, and a page that is gone for a moment is a SIGBUS.
  void resize_shared(int64_t rows_bytes) {
    const bool resized = ftruncate(shared.get(), process ? kRowsOffset : 0) == 0 && ftruncate(shared.get(), kRowsOffset + rows_bytes) == 0;
    if (!resized && errno == EFBIG)
      throw UsageError(fmt::format("a case's answers take {} bytes, more than a file may have here (ulimit -f)", kRowsOffset + rows_bytes));
    if (!resized) throw std::system_error(errno, std::generic_category(), "resizing the judged rows");
  }
  template <class T>
  std::optional<std::vector<T>> read_shared(int64_t offset, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    char* at = reinterpret_cast<char*>(values.data());
    for (int64_t done = 0, bytes = count * int64_t{sizeof(T)}; done < bytes;) {
      ssize_t n = pread(shared.get(), at + done, static_cast<size_t>(bytes - done), offset + done);
      if (n <= 0) return {};
      done += n;
    }
    return values;
  }

  /// A new request: no kernel was called yet. (The worker does the same, if it comes to that.)
  void clear_kernel_time() const {
    constexpr int64_t none[2] = {};
    static_assert(offsetof(Blackbox, kernel_spent_ns) == offsetof(Blackbox, kernel_since_ns) + sizeof none[0]);
    if (pwrite(shared.get(), none, sizeof none, offsetof(Blackbox, kernel_since_ns)) < 0) {}  // then the deadline is not extended
  }
  Blackbox read_blackbox() const {
    Blackbox box{};
    return pread(shared.get(), &box, sizeof box, 0) == ssize_t{sizeof box} ? box : Blackbox{};
  }

  /// Reaps a worker that gave no answer and says why.
  Death bury(Process::Event event, const Overdue& overdue = {}) {
    const Blackbox box = read_blackbox();
    Exit exit = process->kill();
    std::string where = text_of(box.stage, sizeof box.stage), fault = text_of(box.fault, sizeof box.fault);
    std::string during = where.empty() ? "" : " in " + where, stderr_tail = last_lines(process->err_text, 3);
    auto death = [&](Status status, std::string text) {
      if (const int sent = process->signal_sent()) text += "; it " + sent_text(sent);
      if (!stderr_tail.empty()) text += "; stderr: " + stderr_tail;
      process.reset();
      return Death{status, std::move(text), overdue.others || box.in_other_thread || (box.kernel_since_ns == 0 && box.kernel_spent_ns == 0)};
    };
    switch (event) {
      case Process::Event::deadline:
        return death(overdue.status, overdue.why + (overdue.status == Status::timeout ? during : ""));  // else it is an earlier request's
      case Process::Event::closed:
        return death(Status::crash, fmt::format("the protocol's descriptor was closed{}: descriptors that are not the kernel's own", during));
      case Process::Event::flood:
      case Process::Event::line:
        return death(Status::crash, fmt::format("no protocol message came{}: something wrote to the protocol's descriptor", during));
      case Process::Event::exited:
        break;
    }
    if (!exit.signalled && exit.code == kExitLostSocket)
      return death(Status::crash, fmt::format("descriptors that are not the kernel's own were closed{}: the worker could not answer", during));
    if (!exit.signalled && exit.code == kExitBadRequest && box.begun != number)
      return death(Status::crash, "the request did not come in one piece: something else reads from the protocol's descriptor");
    bool starved = box.data_limit_bytes > 0 && box.data_bytes > box.data_limit_bytes - box.data_allowance_bytes / 4;
    if (exit.signalled && starved)
      return death(Status::oom, fmt::format("{}{} at its memory limit: {} MiB of its own", to_string(exit), during, box.data_allowance_bytes >> 20));
    std::string text = to_string(exit) + during;
    if (!fault.empty()) text += ": " + fault;
    if (box.in_other_thread) text += box.kernel_since_ns ? ", in a thread of a kernel's" : ", in a thread that a kernel left behind";
    if (exit.signalled && exit.code == SIGKILL) text += " (killed from outside: out of memory, or by hand)";
    return death(Status::crash, std::move(text));
  }

  /// Answers of two builds must not stand under one name. Another file in its place matters when it is loaded next; a library that was written over
  /// is the code that runs.
  void refuse_another_file() {
    const FileState now = state_of(own_file);
    if (starts == 0) loaded = now;
    if (now == loaded || (process && (!options.python.empty() || !same_inode(now, loaded)))) return;
    throw UsageError(fmt::format("{} was {} after it had been loaded: a run is of one build, and ends here; its rows up to now are in the report",
                                 own_file, now == FileState{} ? "removed" : "changed"));
  }

  /// A running worker, or why there is none. Throws UsageError if the library cannot be used, or is not what it was.
  std::optional<Death> ensure_started() {
    if (process && process->ended()) process.reset();
    refuse_another_file();
    if (process) return {};
    std::vector<std::string> args = {"smla", "worker"};
    std::string program = options.program;
    if (!options.python.empty()) {
      args = python_worker(options.python);
      program = args.front();
    }
    if (!options.plugin.empty()) args.push_back("--plugin=" + options.plugin);
    if (options.gpu >= 0) args.push_back(fmt::format("--gpu={}", options.gpu));
    resize_shared(0);
    try {
      process = std::make_unique<Process>(program, args, shared.get());
    } catch (const std::system_error& error) {
      if (options.python.empty()) throw;
      throw UsageError(fmt::format("--python: the interpreter does not start: {} (SMLA_PYTHON names another)", error.what()));
    }
    ++starts;
    served.clear();
    ran.clear();
    std::string line;
    if (Process::Event event = process->receive(&line, kMaxLineBytes, in_seconds(options.load_s)); event != Process::Event::line)
      return bury(event, no_answer(options.load_s));
    try {
      Reply reply = decode_reply(line);
      if (auto* refused = std::get_if<Refused>(&reply.body)) {
        process.reset();
        throw UsageError(refused->text);
      }
      if (auto* ready = std::get_if<Ready>(&reply.body)) {
        kernels = std::move(ready->kernels);
        if (const int sent = process->signal_sent()) {
          process.reset();
          return Death{Status::crash, sent_text(sent) + " while it was loaded"};
        }
        return std::nullopt;
      }
    } catch (const ProtocolError&) {}
    return bury(Process::Event::line);
  }

  /// The answer, or how the worker ended. What goes wrong before this kernel was called, or in a thread of some kernel's, need not be its fault
  /// where the process has served others: a fresh one is asked once more.
  template <class Answer>
  std::variant<Answer, Death> ask(const Request& request, int64_t rows_bytes, double deadline_s) {
    std::visit([](const auto& r) { validate(r.c); }, request);  // else it would not even be a message
    if (process && process->ended() && !served.empty() && !interrupted()) {
      const std::string last = served;
      tell(clean_text(fmt::format("a worker ended after a call of '{}' had come back: {}", last, bury(Process::Event::exited).detail)));
    }
    const std::string before = process ? served : "";
    std::string why;
    try {
      auto outcome = ask_once<Answer>(request, rows_bytes, deadline_s);
      const auto* death = std::get_if<Death>(&outcome);
      if (!death || before.empty() || !death->others || interrupted()) return outcome;
      why = death->detail;
    } catch (const UsageError& error) {
      if (before.empty()) throw;
      why = error.what();
      process.reset();
    }
    auto outcome = ask_once<Answer>(request, rows_bytes, deadline_s);
    if (std::holds_alternative<Death>(outcome)) return outcome;  // it was this kernel's own doing
    tell(clean_text(fmt::format("a worker was not fit to go on after a call of '{}': {}; a fresh one was asked", before, why)));
    return outcome;
  }
  template <class Answer>
  std::variant<Answer, Death> ask_once(const Request& request, int64_t rows_bytes, double deadline_s) {
    if (interrupted()) return Death{Status::crash, "the run was interrupted"};
    if (auto death = ensure_started()) return *death;
    served = kernel_of(request);
    if (std::holds_alternative<RunRequest>(request)) ran.insert(served);
    if (const auto* timed = std::get_if<TimeRequest>(&request))
      for (const Lane& lane : timed->lanes) ran.insert(lane.kernel);
    resize_shared(rows_bytes);
    clear_kernel_time();
    process->clear_text();
    // A worker that cannot be sent to is found dead or late below.
    process->send(encode(++number, request), in_seconds(deadline_s));
    for (Patience patience(*process, number, deadline_s, options.idle_s);;) {
      std::string line;
      if (const Process::Event event = process->receive(&line, kMaxLineBytes, patience.next_look()); event != Process::Event::line) {
        if (event != Process::Event::deadline) return bury(event);
        if (const auto overdue = patience.look(read_blackbox())) return bury(event, *overdue);
        continue;
      }
      try {
        Reply reply = decode_reply(line);
        if (reply.number < number) continue;  // of a request that is over
        if (auto* refused = std::get_if<Refused>(&reply.body)) throw UsageError(refused->text);
        if (auto* answer = std::get_if<Answer>(&reply.body); answer && reply.number == number) return finish(std::move(*answer), reply.retire);
      } catch (const ProtocolError&) {}
      return bury(Process::Event::line);
    }
  }
  RunReply finish(RunReply reply, bool retire) {
    reply.stdout_text = process->out_text;
    reply.stderr_text = process->err_text;
    return finish<RunReply>(std::move(reply), retire);
  }
  template <class Answer>
  Answer finish(Answer answer, bool retire) {
    if (const int sent = process->signal_sent()) {
      answer.status = Status::crash;
      answer.detail = sent_text(sent);
      retire = true;
    }
    if (answer.status == Status::crash || answer.status == Status::oom)
      if (std::string tail = last_lines(process->err_text, 3); !tail.empty()) answer.detail += "; stderr: " + tail;
    if (retire) {
      process->kill();
      process.reset();
    }
    return answer;
  }
  template <class Answer>
  static Answer answer_of(std::variant<Answer, Death> outcome) {
    Answer answer;
    if (auto* death = std::get_if<Death>(&outcome)) {
      answer.status = death->status;
      answer.detail = std::move(death->detail);
    } else {
      answer = std::move(std::get<Answer>(outcome));
    }
    clean(answer);
    return answer;
  }
};

Worker::Worker(WorkerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Worker::~Worker() = default;

std::vector<KernelInfo> Worker::list() {
  if (auto death = impl_->ensure_started()) {
    if (const int signal = interrupted()) throw Interrupted(fmt::format("interrupted by signal {} before a case was asked", signal));
    if (!impl_->options.python.empty()) throw UsageError(fmt::format("--python {}: {}", impl_->options.python, death->detail));
    if (impl_->options.plugin.empty()) throw std::runtime_error("the worker did not start: " + death->detail);
    throw UsageError(fmt::format("plug-in {}: could not be loaded: {}", impl_->options.plugin, death->detail));
  }
  return impl_->kernels;
}

RunReply Worker::supports(const Case& c, const std::string& kernel, int arch_cc) {
  const int64_t begin_ns = steady_now_ns();
  RunReply reply = Impl::answer_of(impl_->ask<RunReply>(SupportsRequest{c, kernel, arch_cc}, 0, kSupportsDeadline_s));
  note_asking(reply, begin_ns);
  return reply;
}

RunReply Worker::run(const RunRequest& request) {
  const int64_t rows = static_cast<int64_t>(request.tokens.size()) * request.c.h_q, out_count = rows * request.c.d_v;
  const int64_t lse_offset = judged_lse_offset(out_count), begin_ns = steady_now_ns();
  RunReply reply = Impl::answer_of(impl_->ask<RunReply>(request, lse_offset - kRowsOffset + rows * int64_t{sizeof(float)}, request.deadline_s));
  note_asking(reply, begin_ns);
  if (reply.status == Status::pass) {
    const int64_t copied_ns = steady_now_ns();
    const bool has_lse = reply.contract.lse_dtype != LseType::none;
    auto out = impl_->read_shared<uint16_t>(kRowsOffset, out_count);
    auto lse = impl_->read_shared<float>(lse_offset, has_lse ? rows : 0);
    if (!out || !lse) {
      reply.status = Status::crash;
      reply.detail = "cut off the judged rows, which are in a descriptor that is not the kernel's own";
      impl_->process.reset();
      return reply;
    }
    reply.out = std::move(*out);
    reply.lse = std::move(*lse);
    reply.spans.push_back({Activity::rows, copied_ns, steady_now_ns()});
  }
  return reply;
}

TimeReply Worker::time(const TimeRequest& request) { return Impl::answer_of(impl_->ask<TimeReply>(request, 0, request.deadline_s)); }

void Worker::renew_for(const std::string& kernel) {
  if (!alive() || !impl_->ran.contains(kernel)) return;
  impl_->renewed_peak_bytes = peak_bytes();
  impl_->process->kill();
  impl_->process.reset();
}

int64_t Worker::peak_bytes() const { return std::max(impl_->renewed_peak_bytes, impl_->process ? smla::peak_bytes(impl_->process->pid()) : 0); }
bool Worker::alive() const { return impl_->process && !impl_->process->ended(); }
int Worker::restarts() const { return std::max(0, impl_->starts - 1); }

}  // namespace smla
