// SPDX-License-Identifier: Apache-2.0
// Kernels that misbehave, each in a worker: how it ends, what is said, and that the next request works.
#include "harness/worker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cases/cost.h"
#include "kernels/problem.h"
#include "reference/budget.h"
#include "smla_catch.h"

using namespace smla;
using std::chrono::steady_clock;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // shadow memory would count: memory is not limited
#else
constexpr bool kSanitized = false;
#endif

const char* const kLine = "decode b=2 s_q=2 h_q=4 s_kv=256 topk=64 pattern=scattered";

Worker& worker() {
  static Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  return w;
}
RunRequest ask(const std::string& kernel, const char* line = kLine) {
  RunRequest request;
  request.c = parse_line(line);
  request.kernel = kernel;
  request.tokens = {0, 3};
  request.threads = 1;
  request.deadline_s = 20;
  return request;
}
double seconds(const std::function<void()>& work) {
  auto begin = steady_clock::now();
  work();
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

/// What `work` prints to stderr.
std::string told_by(const std::function<void()>& work) {
  const int kept = dup(STDERR_FILENO), file = memfd_create("told", 0);
  dup2(file, STDERR_FILENO);
  work();
  dup2(kept, STDERR_FILENO);
  std::string told(static_cast<size_t>(lseek(file, 0, SEEK_END)), ' ');
  CHECK(pread(file, told.data(), told.size(), 0) == std::ssize(told));
  close(kept), close(file);
  return told;
}

void next_request_works() {
  RunReply reply = worker().run(ask("healthy"));
  INFO(reply.detail);
  REQUIRE(reply.status == Status::pass);
  CHECK(reply.guards_ok);
  CHECK(reply.inputs_ok);
  CHECK(reply.written_ok);
}

struct ProcessState {
  char state = 0;  // 0 = there is no such process
  pid_t parent = 0;
};
ProcessState state_of(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(stat, text);
  ProcessState found;
  const size_t paren = text.rfind(')');  // the name before it may hold anything
  if (paren != text.npos) std::sscanf(text.c_str() + paren + 1, " %c %d", &found.state, &found.parent);
  return found;
}
bool process_runs(pid_t pid) {
  const char state = state_of(pid).state;
  return state != 0 && state != 'Z';
}
bool ends_soon(pid_t pid) {
  for (int i = 0; i < 300 && process_runs(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !process_runs(pid);
}
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc"))
    if (const pid_t pid = std::atoi(entry.path().filename().c_str()); pid > 0 && state_of(pid).parent == parent && process_runs(pid))
      found.push_back(pid);
  return found;
}
std::vector<pid_t> workers_here() {
  std::vector<pid_t> found = children_of(getpid());
  std::erase_if(found, [](pid_t pid) { return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid)) != SMLA_TEST_WORKER; });
  return found;
}

}  // namespace

TEST_CASE("a misbehaving kernel ends its own request only") {
  struct Row {
    const char* kernel;
    Status status;
    std::vector<std::string> says;
    bool guards_ok = true, inputs_ok = true, written_ok = true;
    double deadline_s = 20;
  };
  const Row row = GENERATE(values<Row>({
      {"abort", Status::crash, {"SIGABRT in launch 1 of 1", "first words / hostile: giving up"}},
      {"segv", Status::crash, {"SIGSEGV in launch 1 of 1", "address 0x10"}},
      {"loop", Status::timeout, {"no answer within 0.5 s in launch 1 of 1"}, true, true, true, 0.5},
      {"sleep", Status::timeout, {"no answer within 0.5 s in launch 1 of 1"}, true, true, true, 0.5},
      {"error", Status::crash, {"launch 1 of 1: tile count 0 is not supported"}},
      {"error_lines", Status::crash, {"launch 1 of 1: tile  [31m| 0 | \xEF\xBF\xBD is not supported"}},
      {"returns_enomem", Status::oom, {"launch 1 of 1: no room for its tiles"}},
      {"silent_error", Status::crash, {"launch 1 of 1: returned -3"}},
      {"write_past_out", Status::pass, {"out: byte 16389 was written, it has 16384"}, false},
      {"write_before_out", Status::pass, {"out: the byte 2 before its first one was written"}, false},
      {"write_far_past_out", Status::crash, {"SIGSEGV in launch 1 of 1", "bytes past the end of out"}},
      {"write_inputs", Status::pass, {"indices: byte ", " of 1024 was written"}, true, false},
      {"write_inputs_and_restore", Status::pass, {"indices: byte 20 of 1024 was written"}, true, false},
      {"write_inputs_and_fail", Status::crash, {"tile count 0 is not supported"}},
      {"write_pool", Status::pass, {"kv: byte 1153 of"}, true, false},
      {"write_slot_minus_1", Status::pass, {"kv: byte -1 of"}, true, false},
      {"write_past_workspace", Status::pass, {"workspace: byte 64 was written, it has 64"}, false},
      {"print_stdout", Status::pass, {"hello from a kernel"}},
      {"flood_stdout", Status::pass, {"the quick brown fox"}},
      {"throw_exception", Status::crash, {"launch 1 of 1 threw: no such tile"}},
      {"throw_int", Status::crash, {"launch 1 of 1 threw something"}},
      {"exit3", Status::crash, {"exited with 3 in launch 1 of 1"}},
      {"quick_exit0", Status::crash, {"exited with 0 in launch 1 of 1"}},
      {"fork", Status::crash, {"left a child process behind"}},
      {"fork_stray", Status::crash, {"left a child process behind"}},
      {"fork_setsid", Status::crash, {"left a child process behind"}},
      {"fork_unheard", Status::crash, {"left a child process behind"}},
      {"thread_stray", Status::pass, {}},
      {"fork_and_wait", Status::pass, {}},
      {"fork_die", Status::crash, {"SIGABRT in launch 1 of 1"}},
      {"leak_throw", Status::oom, {"launch 1 of 1 threw std::bad_alloc"}},
      {"leak_abort", Status::oom, {"SIGABRT in launch 1 of 1 at its memory limit"}},
      {"leak_some", Status::pass, {}},
      {"close_fds", Status::crash, {"descriptors that are not the kernel's own were closed in"}},
      {"close_stdout", Status::crash, {"descriptor that is not the kernel's own"}},
      {"write_fds", Status::crash, {"something wrote to the protocol's descriptor"}},
      {"stack_overflow", Status::crash, {"SIGSEGV in launch 1 of 1"}},
      {"read_slot_minus_1", Status::pass, {}},
      {"skip_one_element", Status::pass, {"out[1][1][3][511] was not written"}, true, true, false},
      {"skip_lse", Status::pass, {"lse[0][0][0] was not written"}, true, true, false},
      {"nothing", Status::pass, {"out[0][0][0][0] was not written"}, true, true, false},
      {"lower_limits", Status::crash, {"changed the process that it runs in: RLIMIT_AS was lowered to 0, RLIMIT_FSIZE was lowered to 0"}},
      {"lower_memory", Status::crash, {"RLIMIT_AS was lowered to 0"}},
      {"leave_alarm", Status::crash, {"a timer was left"}},
      {"leave_profiler", Status::crash, {"a timer was left"}},
      {"leave_timer", Status::crash, {"a timer was left"}},
      {"change_rounding", Status::pass, {}},
      {"catch_faults", Status::crash, {"the handler of SIGSEGV was replaced", "the handler of SIGBUS was replaced"}},
      {"leak_mappings", Status::crash, {"no more memory can be mapped"}},
      {"leak_descriptors", Status::crash, {"no descriptor is left"}},
      {"truncate_fds", Status::crash, {"SIGBUS in returning the judged rows"}},
      {"hold_stdout", Status::timeout, {"no answer within 0.5 s in flushing what was printed"}, true, true, true, 0.5},
      {"move_away", Status::pass, {}},
      {"huge_workspace", Status::oom, {"workspace: 1125899906842624 bytes"}},
      {"negative_workspace", Status::crash, {"workspace_bytes returned -5"}},
      {"declines", Status::unsupported, {"declines everything"}},
      {"abort_in_supports", Status::crash, {"SIGABRT in supports"}},
  }));
  INFO(row.kernel);
  const std::string_view name = row.kernel;
  if (kSanitized && (name.starts_with("leak") || name == "lower_limits")) return;  // the sanitizer's own memory ends first
  RunRequest request = ask(row.kernel);
  request.deadline_s = row.deadline_s;
  RunReply reply;
  const double took_s = seconds([&] { reply = worker().run(request); });
  INFO(reply.detail);
  CHECK(name_of(reply.status) == name_of(row.status));
  for (const std::string& text : row.says) CHECK_THAT(reply.detail + "\n" + reply.guards_detail + "\n" + reply.stdout_text, ContainsSubstring(text));
  CHECK(reply.guards_ok == row.guards_ok);
  CHECK(reply.inputs_ok == row.inputs_ok);
  CHECK(reply.written_ok == row.written_ok);
  CHECK(took_s < row.deadline_s + 1);
  next_request_works();
}

TEST_CASE("the last words of a kernel that dies are quoted, and its output is kept when it lives") {
  RunReply reply = worker().run(ask("print_stdout"));
  CHECK(reply.stdout_text == "ok n=1 status=pass\nhello from a kernel");
  CHECK(reply.stderr_text.empty());
  CHECK(worker().run(ask("flood_stdout")).stdout_text.size() <= 8192);
  CHECK(worker().run(ask("healthy")).stdout_text.empty());
}

TEST_CASE("reads of slot -1, of slot num_slots and beyond the lists fault where asked, and only there") {
  auto run = [&](const char* kernel, Guard guard, const char* line) {
    RunRequest request = ask(kernel, line);
    request.guard = guard;
    request.tokens = {0};
    return worker().run(request);
  };
  const char* line = GENERATE("decode b=2 s_q=1 h_q=2 s_kv=256 topk=64", "decode b=1 s_q=1 h_q=2 s_kv=777 topk=64 kv_format=fp8_656 page_size=16",
                              "decode b=1 s_q=1 h_q=2 s_kv=1024 topk=64 page_stride_rows=80");
  INFO(line);
  CHECK(run("read_slot_minus_1", Guard::canary, line).status == Status::pass);
  CHECK(run("read_slot_num_slots", Guard::canary, line).status == Status::pass);
  CHECK(run("read_slot_minus_1", Guard::fault_after, line).status == Status::pass);
  const RunReply before = run("read_slot_minus_1", Guard::fault_before, line), after = run("read_slot_num_slots", Guard::fault_after, line);
  CHECK(before.status == Status::crash);
  CHECK_THAT(before.detail, ContainsSubstring("SIGSEGV in launch 1 of 1: " +
                                              std::string(parse_line(line).kv_format == KvFormat::bf16 ? "1152" : "656") + " bytes before kv"));
  CHECK(after.status == Status::crash);
  CHECK_THAT(after.detail, ContainsSubstring("SIGSEGV in launch 1 of 1: 0 bytes past the end of kv"));
  const RunReply past = run("read_past_indices", Guard::fault_after, line);
  CHECK(past.status == Status::crash);
  CHECK_THAT(past.detail, ContainsSubstring("SIGSEGV in launch 1 of 1: 252 bytes past the end of indices"));
  CHECK(run("read_past_indices", Guard::canary, line).status == Status::pass);
  for (Guard guard : {Guard::canary, Guard::fault_before, Guard::fault_after})
    CHECK(run("read_everything_selected", guard, line).status == Status::pass);
}

TEST_CASE("far: selected rows can be read beyond 2^32, slot -1 faults") {
  const char* line = "decode b=1 s_q=1 h_q=2 s_kv=4194304 topk=128 pattern=far";
  RunRequest request = ask("read_everything_selected", line);
  request.tokens = {0};
  RunReply reply = worker().run(request);
  INFO(reply.detail);
  CHECK(reply.status == Status::pass);
  CHECK(reply.inputs_ok);
  request.kernel = "read_slot_minus_1";
  CHECK(worker().run(request).status == Status::crash);
}

TEST_CASE("runs are told apart by their hashes; fills and dirt reach the kernel") {
  RunRequest request = ask("nondeterministic");
  request.launches = 3;
  RunReply reply = worker().run(request);
  REQUIRE(reply.out_hash.size() == 3);
  REQUIRE(reply.lse_hash.size() == 3);
  CHECK(reply.out_hash[0] != reply.out_hash[1]);
  CHECK(reply.lse_hash[1] != reply.lse_hash[2]);

  request.kernel = "healthy";
  request.alternate = GENERATE(false, true);
  reply = worker().run(request);
  CHECK(reply.status == Status::pass);
  CHECK(reply.out_hash == std::vector<uint64_t>(3, reply.out_hash[0]));
  CHECK(reply.kernel_ms > 0);
  CHECK(reply.first_launch_ms > 0);
  CHECK(reply.out == std::vector<uint16_t>(2 * 4 * 512, 0));
  CHECK(reply.lse == std::vector<float>(2 * 4, 0.f));
  CHECK(reply.contract == Contract{.p = Rounding::q});

  request.kernel = "copies_workspace";  // the first byte that it finds is what it answers: another word than its outputs held
  request.launches = 1;
  request.alternate = false;
  for (auto [fill, byte] : {std::pair{OutputFill::nan, 0xe6}, {OutputFill::ones, 0xff}, {OutputFill::huge, 0xff}}) {
    request.fill = fill;
    reply = worker().run(request);
    CHECK(reply.out.at(0) == byte * 0x101);
    CHECK(reply.written_ok == (fill != OutputFill::ones));  // its answer looks like this very fill
  }
  request.launches = 3;
  request.fill = OutputFill::nan;
  reply = worker().run(request);
  CHECK(reply.out_hash[0] == reply.out_hash[1]);  // the second call finds what the first one left
  CHECK(reply.out_hash[1] != reply.out_hash[2]);  // the third, other dirt

  request.calls = Calls::back_to_back;  // one workspace through all calls
  reply = worker().run(request);
  CHECK(reply.out_hash == std::vector<uint64_t>(3, reply.out_hash.at(0)));
  request.kernel = "nondeterministic";
  reply = worker().run(request);
  CHECK(reply.out_hash.at(1) != reply.out_hash.at(2));

  request.calls = GENERATE(Calls::gate, Calls::graph, Calls::streams);  // memory of the host has no streams, and nobody says that it passed
  reply = worker().run(request);
  CHECK(reply.status == Status::unsupported);
  CHECK_THAT(reply.detail, ContainsSubstring("no streams"));
}

TEST_CASE("how one kernel rounds, and where it runs, is nothing to the next") {
  CHECK(worker().run(ask("change_rounding")).status == Status::pass);
  CHECK(worker().run(ask("answer_rounding")).out.at(0) == 0);

  Worker fresh({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  const uint16_t before = fresh.run(ask("answer_schedule")).out.at(0);
  CHECK(fresh.run(ask("change_schedule")).status == Status::pass);
  CHECK(fresh.run(ask("answer_schedule")).out.at(0) == before);
  CHECK(fresh.restarts() == 0);
}

TEST_CASE("a plug-in that is rebuilt while a run is under way ends the run: no row is of another build") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("smla_rebuilt.{}", getpid());
  std::filesystem::create_directory(folder);
  const std::string file = folder / "mine.so";
  std::filesystem::copy_file(SMLA_HOSTILE, file);
  Worker w({.plugin = file, .program = SMLA_TEST_WORKER});
  CHECK(w.run(ask("healthy")).status == Status::pass);
  const auto refusal = [&] {
    try {
      w.run(ask("healthy"));
    } catch (const UsageError& error) { return std::string(error.what()); }
    return std::string();
  };
  SECTION("another in its place matters once it is to be loaded") {
    std::filesystem::copy_file(SMLA_HOSTILE, folder / "next.so");
    std::filesystem::rename(folder / "next.so", file);
    CHECK(w.run(ask("healthy")).status == Status::pass);
    CHECK(w.run(ask("abort")).status == Status::crash);
    CHECK_THAT(refusal(), ContainsSubstring(file + " was changed after it had been loaded"));
  }
  SECTION("none in its place") {
    std::filesystem::remove(file);
    CHECK(w.run(ask("abort")).status == Status::crash);
    CHECK_THAT(refusal(), ContainsSubstring(file + " was removed after it had been loaded"));
  }
  SECTION("written over: at once") {
    std::ofstream(file, std::ios::app) << "more";
    CHECK_THAT(refusal(), ContainsSubstring(file + " was changed after it had been loaded"));
    CHECK_THAT(refusal(), ContainsSubstring(file + " was changed after it had been loaded"));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("writes into the gaps between rows are found") {
  RunRequest request = ask("write_gap");
  request.variant.pad_strides = true;
  const RunReply reply = worker().run(request);
  CHECK(!reply.guards_ok);
  CHECK_THAT(reply.guards_detail, ContainsSubstring("out: byte 1024, in a gap between its rows, was written"));
}

TEST_CASE("mistakes of the caller are his") {
  CHECK_THROWS_WITH(worker().run(ask("helthy")), ContainsSubstring("healthy"));
  RunRequest request = ask("healthy");
  request.tokens = {4};
  CHECK_THROWS_AS(worker().run(request), UsageError);
  request = ask("healthy");
  request.c.sm_scale = -1;
  CHECK_THROWS_AS(worker().run(request), UsageError);
  next_request_works();
}

TEST_CASE("the judged rows are those that were asked for, as the kernel wrote them") {
  static Worker built_in({.program = SMLA_TEST_WORKER});
  const char* line = GENERATE("decode b=5 s_q=2 h_q=8 s_kv=300 topk=96 page_size=16 sink=finite",
                              "prefill b=2 s_q=7 h_q=4 s_kv=200 topk=128 kv_format=fp8_656 pattern=padded",
                              "decode b=2 s_q=2 h_q=5 s_kv=4194304 topk=70 kv_format=fp16 q_dtype=fp16 pattern=far");
  const char* kernel = GENERATE("cpu_naive", "cpu_split", "cpu_split+lse_bf16", "cpu_split+lse_none");
  const char* word = GENERATE("base", "strided+poison_random", "remapped+second");
  INFO(line << " " << kernel << " " << word);
  RunRequest request;
  request.c = parse_line(line);
  request.variant = parse_variant(word);
  request.kernel = kernel;
  request.tokens = {3, 0, 1};  // in this order
  request.launches = 2;
  request.threads = 2;
  const RunReply reply = built_in.run(request);
  INFO(reply.detail << reply.guards_detail);
  REQUIRE(reply.status == Status::pass);
  CHECK(reply.guards_ok);
  CHECK(reply.inputs_ok);
  CHECK(reply.written_ok);
  CHECK(reply.out_hash.at(0) == reply.out_hash.at(1));
  const Inputs in = make_inputs(request.c, request.variant);
  const OracleBlock block = oracle(in, request.tokens);
  REQUIRE(reply.out.size() == static_cast<size_t>(block.rows() * in.c.d_v));
  REQUIRE(reply.lse.size() == (reply.contract.lse_dtype == LseType::none ? 0 : static_cast<size_t>(block.rows())));
  std::vector<float> row(static_cast<size_t>(in.c.d_v));
  for (int64_t r = 0; r < block.rows(); ++r) {
    for (size_t d = 0; d < row.size(); ++d) row[d] = widen(in.c.q_dtype, reply.out[static_cast<size_t>(r) * row.size() + d]);
    const RowStats stats = judge_row(block, r, in, reply.contract, true, row, reply.lse.empty() ? 0 : reply.lse[static_cast<size_t>(r)]);
    INFO(r << " z_max " << stats.z_max << " lse " << stats.lse_ratio);
    CHECK(stats.ok());
  }
}

TEST_CASE("supports is asked alone") {
  const Case c = parse_line(kLine);
  CHECK(worker().supports(c, "healthy", 120).status == Status::pass);
  const RunReply declined = worker().supports(c, "declines");
  CHECK(declined.status == Status::unsupported);
  CHECK(declined.detail == "declines everything");
  CHECK(worker().supports(c, "abort_in_supports").status == Status::crash);
}

TEST_CASE("inputs too large to stand beside each other take turns: the same checks, half the memory") {
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  RunRequest request = ask("healthy", "decode b=1 s_q=1 h_q=4 s_kv=131072 topk=64");
  request.tokens = {0};
  request.launches = 3;
  request.alternate = true;
  for (const char* kernel : {"healthy", "read_everything_selected", "healthy"}) {
    request.kernel = kernel;
    const RunReply reply = w.run(request);
    CAPTURE(kernel, reply.detail, reply.guards_detail);
    CHECK(reply.status == Status::pass);
    CHECK(reply.guards_ok);
    CHECK(reply.inputs_ok);
    CHECK(reply.out_hash == std::vector<uint64_t>(3, reply.out_hash[0]));
  }
  const TensorBytes bytes = tensor_bytes(make_problem(make_inputs(request.c), 1));
  const int64_t tensors = bytes.kv + bytes.q + bytes.indices + bytes.block_table + bytes.seq_lens + bytes.out + bytes.lse;
  CAPTURE(tensors, w.peak_bytes());
  if (!kSanitized) CHECK(w.peak_bytes() <= tensors * 3 / 2 + (int64_t{64} << 20));
  CHECK(w.peak_bytes() > tensors / 2);
  for (const char* kernel : {"write_pool", "write_slot_minus_1"}) {
    request.kernel = kernel;
    CHECK_FALSE(w.run(request).inputs_ok);
  }
  request.kernel = "healthy";
  CHECK(w.run(request).inputs_ok);
  CHECK(w.restarts() == 0);
}

TEST_CASE("a case that cannot fit is skipped before anything is allocated") {
  RunRequest request = ask("healthy", "decode b=1 s_q=1 h_q=2 s_kv=1800000000 topk=64 page_size=65536 pattern=contiguous");  // 2.3 TB
  request.tokens = {0};
  request.deadline_s = 60;
  const RunReply reply = worker().run(request);
  CHECK(reply.status == Status::skipped);
  CHECK_THAT(reply.detail, ContainsSubstring("the case's tensors need 23"));
}

TEST_CASE("time that the harness takes is not held against the kernel") {
  RunRequest request = ask("healthy", "decode b=8 s_q=1 h_q=8 s_kv=32768 topk=2048");
  request.tokens = {0};
  request.deadline_s = 0.1;  // generation alone takes longer
  CHECK(worker().run(request).status == Status::pass);
  request.kernel = "sleep";
  CHECK(worker().run(request).status == Status::timeout);
}

TEST_CASE("plug-ins that cannot be used say why") {
  auto refusal = [](const std::string& path, double load_s = 60) -> std::string {
    Worker w({.plugin = path, .program = SMLA_TEST_WORKER, .load_s = load_s});
    try {
      w.list();
    } catch (const UsageError& error) { return error.what(); }
    return "";
  };
  CHECK_THAT(refusal("/no/such/file.so"), ContainsSubstring("/no/such/file.so"));
  CHECK_THAT(refusal(__FILE__), ContainsSubstring("worker_test.cc"));  // not a library
  CHECK_THAT(refusal("libm.so.6"), ContainsSubstring("libm.so.6"));    // not looked up in the system's folders
  setenv("SMLA_HOSTILE_LOAD", "abort", 1);
  CHECK_THAT(refusal(SMLA_HOSTILE), ContainsSubstring("SIGABRT in loading kernels"));
  setenv("SMLA_HOSTILE_LOAD", "exit", 1);
  CHECK_THAT(refusal(SMLA_HOSTILE), ContainsSubstring("exited with 5 in loading kernels"));
  setenv("SMLA_HOSTILE_LOAD", "slow", 1);
  CHECK_THAT(refusal(SMLA_HOSTILE, 0.5), ContainsSubstring("no answer within 0.5 s in loading kernels"));
  {
    Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});  // loading is not held against the first request's deadline
    RunRequest request = ask("healthy");
    request.deadline_s = 1;
    CHECK(w.run(request).status == Status::pass);
  }
  unsetenv("SMLA_HOSTILE_LOAD");
  CHECK_THROWS_AS(Worker({.program = "/no/such/smla"}).list(), std::system_error);
}

TEST_CASE("a worker is started on first use, replaced when dead, and serves many requests while healthy") {
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  CHECK(!w.alive());
  CHECK(w.list().size() > 30);
  CHECK(w.alive());
  for (int i = 0; i < 20; ++i) REQUIRE(w.run(ask("healthy")).status == Status::pass);
  CHECK(w.restarts() == 0);
  w.run(ask("abort"));
  CHECK(!w.alive());
  CHECK(w.run(ask("healthy")).status == Status::pass);
  CHECK(w.restarts() == 1);
  if (kSanitized) return;
  CHECK(w.run(ask("leak_some")).status == Status::pass);
  CHECK(!w.alive());  // it grew too much to be kept
}

TEST_CASE("a worker is renewed for a kernel that it ran, and for no other") {
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  CHECK(w.run(ask("healthy")).status == Status::pass);
  CHECK(w.supports(parse_line(kLine), "slow").status == Status::pass);
  w.renew_for("slow");
  CHECK(w.alive());
  w.renew_for("healthy");
  CHECK(!w.alive());
  CHECK(w.peak_bytes() > 0);
  CHECK(w.run(ask("slow")).status == Status::pass);
  w.renew_for("healthy");
  CHECK(w.alive());
  CHECK(w.restarts() == 1);
}

TEST_CASE("a worker killed from outside is noticed at once, idle or busy") {
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  const std::vector<pid_t> before = workers_here();
  w.list();
  for (pid_t pid : workers_here())
    if (std::find(before.begin(), before.end(), pid) == before.end()) kill(pid, SIGKILL);
  for (int i = 0; i < 3000 && w.alive(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(!w.alive());
  CHECK(w.run(ask("healthy")).status == Status::pass);  // nobody's fault: replaced

  RunReply reply;
  const double took_s = seconds([&] {
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      for (pid_t child : workers_here()) kill(child, SIGKILL);
    });
    reply = w.run(ask("sleep"));
    killer.join();
  });
  CHECK(reply.status == Status::crash);
  CHECK_THAT(reply.detail, ContainsSubstring("SIGKILL in launch 1 of 1 (killed from outside"));
  CHECK(took_s < 5);
}

TEST_CASE("workers and what their kernels forked die with the parent, even in an endless loop") {
  const char* kernel = GENERATE("loop", "fork_stray");
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t parent = fork();
  if (parent == 0) {  // a parent of its own, which will be killed
    Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
    w.list();
    if (write(ready[1], "x", 1) != 1) _exit(1);
    RunRequest request = ask(kernel);
    request.deadline_s = 60;
    request.launches = 1000000;
    w.run(request);
    for (;;) pause();
  }
  char x;
  REQUIRE(read(ready[0], &x, 1) == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::vector<pid_t> family = children_of(parent);
  for (size_t i = 0; i < family.size() && i < 5; ++i)
    for (pid_t grandchild : children_of(family[i])) family.push_back(grandchild);
  REQUIRE(!family.empty());
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  for (pid_t pid : family) CHECK(ends_soon(pid));
}

TEST_CASE("a daemon that a kernel started does not outlive its worker") {
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  w.list();
  const auto processes = [] {  // of this plug-in, wherever they hang
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream words(entry.path() / "cmdline");
      const std::string text(std::istreambuf_iterator<char>(words), {});
      count += text.find(SMLA_HOSTILE) != text.npos && process_runs(std::atoi(entry.path().filename().c_str()));
    }
    return count;
  };
  const size_t before = processes();
  CHECK(w.run(ask("fork_setsid")).status == Status::crash);
  for (int i = 0; i < 300 && processes() >= before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(processes() < before);  // the worker went as well
}

TEST_CASE("a thread that a kernel left behind and that faults is told from the harness's own work") {
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  RunRequest late = ask("fault_late");
  CHECK(w.run(late).status == Status::pass);
  RunRequest request = ask("healthy", "decode b=8 s_q=1 h_q=8 s_kv=32768 topk=2048");  // generation alone takes longer than the thread waits
  request.tokens = {0};
  const std::string told = told_by([&] {
    for (int i = 0; i < 50 && w.restarts() == 0; ++i, ++request.c.seed) CHECK(w.run(request).status == Status::pass);
  });
  CHECK(w.restarts() == 1);
  CHECK_THAT(told, ContainsSubstring("SIGSEGV in ") && ContainsSubstring("address 0x10, in a thread "));
}

TEST_CASE("a worker that does not take up the next request, or stands still, is replaced in time; nobody else is blamed") {
  RunRequest next = ask("healthy", "decode b=8 s_q=1 h_q=8 s_kv=32768 topk=2048");  // generation takes a while
  next.tokens = {0};
  next.deadline_s = 0.5;
  const auto [kernel, says] = GENERATE(table<const char*, const char*>(
      {{"steal_requests", "not taken up within 2 s: the worker is stopped, or something else reads from the protocol"},
       {"steal_a_byte", "did not come in one piece"},
       {"stop_when_busy", "nothing was done for 1 s in "}}));
  INFO(kernel);
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER, .idle_s = 1});
  CHECK(w.run(ask(kernel)).status == Status::pass);
  double took_s = 0;
  const std::string told = told_by([&] {
    for (int i = 0; i < 50 && w.restarts() == 0; ++i, ++next.c.seed)
      took_s = seconds([&] {
        const RunReply reply = w.run(next);
        INFO(reply.detail);
        CHECK(reply.status == Status::pass);
      });
  });
  INFO(told);
  CHECK_THAT(told, ContainsSubstring("a worker was not fit to go on after a call of '"));
  const bool stopped_early = kernel == std::string("stop_when_busy") && told.find("not taken up within 2 s") != told.npos;  // while it still answered
  if (!stopped_early) CHECK_THAT(told, ContainsSubstring(says));
  CHECK(w.restarts() == 1);
  CHECK(took_s < 8);
}

TEST_CASE("timing: what was answered is looked at after some samples and after the last one") {
  TimeRequest request;
  request.c = parse_line(kLine);
  request.lanes = {{Lane::Work::kernel, "slips_when_timed", false, false}};
  request.min_samples = 100;
  request.max_noise = 1e9;
  request.threads = 1;
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  const auto looked_at = [&] {
    const TimeReply reply = w.time(request);
    INFO(reply.detail);
    REQUIRE(reply.lanes.size() == 1);
    return reply.lanes[0];
  };
  const std::vector<uint64_t> slips = looked_at().out_hash;
  CHECK(slips.size() > 5);  // half of them are wrong
  CHECK(slips.size() < 101);
  CHECK(std::count(slips.begin(), slips.end(), slips[0]) < std::ssize(slips));

  request.lanes[0].kernel = "every_other";  // it declares no determinism: its bits are no measure
  request.min_samples = 5;
  const LaneReply skips = looked_at();
  CHECK(skips.status == Status::fail);
  CHECK_THAT(skips.detail, ContainsSubstring("after a timed call: out[0][0][0][0] was not written"));
}

TEST_CASE("a library that takes the requests away from the start: they end, with the reason") {
  RunRequest request = ask("healthy");
  request.deadline_s = 0.5;
  RunReply reply;
  setenv("SMLA_HOSTILE_LOAD", "steal", 1);
  for (int i = 0; i < 50 && reply.status == Status::pass; ++i)  // its thread and the worker's own read at the same time
    reply = Worker({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER}).run(request);
  unsetenv("SMLA_HOSTILE_LOAD");
  CHECK(reply.status == Status::crash);
  CHECK_THAT(reply.detail, ContainsSubstring("not taken up within 2 s"));
}

TEST_CASE("timing: the gather loads a row once, however many query tokens select it") {
  TimeRequest request;
  request.min_samples = 15;
  request.max_noise = 1e9;
  request.threads = 1;
  request.lanes = {{Lane::Work::gather, "healthy", false, false}};
  const auto least_us = [&](const char* line) {
    request.c = parse_line(line);
    const TimeReply reply = worker().time(request);
    INFO(reply.detail);
    REQUIRE(reply.lanes.size() == 1);
    REQUIRE(reply.lanes[0].status == Status::pass);
    return *std::min_element(reply.lanes[0].time_us.begin(), reply.lanes[0].time_us.end());
  };
  const double once = least_us("decode b=1 s_q=1 h_q=4 s_kv=2048 topk=2048 pattern=dense"),
               shared = least_us("prefill b=1 s_q=64 h_q=4 s_kv=2112 topk=2048");  // 64 lists of 2112 rows
  const double half = least_us("decode b=1 s_q=1 h_q=4 s_kv=1024 topk=1024 pattern=dense");
  CAPTURE(once, shared, half);
  CHECK(shared < 4 * once);
  CHECK(half < 0.8 * once);
}

TEST_CASE("a worker that cannot begin a request after another kernel's is replaced: nobody is blamed, nothing ends") {
  const std::filesystem::path file = "positions_of_worker_test.npy";  // by a path that means nothing elsewhere
  {
    const std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 8), }";
    std::ofstream out(file, std::ios::binary);
    out << "\x93NUMPY\x01" << '\0' << static_cast<char>(header.size()) << '\0' << header;
    for (int32_t position = 0; position < 8; ++position) out.write(reinterpret_cast<const char*>(&position), sizeof position);
  }
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  CHECK(w.run(ask("move_away")).status == Status::pass);
  RunRequest request = ask("healthy", "decode b=1 s_q=1 h_q=2 s_kv=90 topk=8 pattern=file:positions_of_worker_test.npy");
  request.tokens = {0};
  const RunReply reply = w.run(request);
  INFO(reply.detail);
  CHECK(reply.status == Status::pass);
  CHECK(w.restarts() == 1);
  std::filesystem::remove(file);
  CHECK_THROWS_AS(w.run(ask("healthy", "decode b=1 s_q=1 h_q=2 s_kv=90 topk=8 pattern=file:positions_of_worker_test.npy seed=2")), UsageError);
  CHECK(w.restarts() == 2);  // a mistake of the caller is one for a fresh worker, too
}

TEST_CASE("timing needs the tensors once") {
  Worker w({.plugin = SMLA_HOSTILE, .program = SMLA_TEST_WORKER});
  TimeRequest request;
  request.c = parse_line("decode b=1 s_q=1 h_q=4 s_kv=131072 topk=64");
  request.lanes = {{Lane::Work::kernel, "healthy", false, true}, {Lane::Work::gather, "healthy", false, true}};
  request.max_noise = 1e9;
  const TimeReply reply = w.time(request);
  CAPTURE(reply.detail, reply.l2_bytes, w.peak_bytes());
  REQUIRE(reply.status == Status::pass);
  const int64_t tensors = tensor_bytes(make_inputs(request.c));
  const int64_t read_over = reply.lanes.at(0).cold_ratio > 0 ? 2 * reply.l2_bytes : 0;  // where the cache has to be passed
  if (!kSanitized) CHECK(w.peak_bytes() <= tensors * 3 / 2 + (int64_t{64} << 20) + read_over);
  CHECK(w.peak_bytes() > tensors);
}

TEST_CASE("timing: samples, why it stopped, how cold it was; lanes take turns") {
  TimeRequest request;
  request.c = parse_line(kLine);
  request.lanes = {{Lane::Work::kernel, "slow", false, true},  {Lane::Work::kernel, "slow", false, false},
                   {Lane::Work::gather, "slow", false, true},  {Lane::Work::empty, "slow", false, false},
                   {Lane::Work::kernel, "error", false, true}, {Lane::Work::kernel, "declines", false, true},
                   {Lane::Work::kernel, "slow", true, true},   {Lane::Work::kernel, "write_past_out", false, false}};
  request.threads = 1;
  request.max_time_s = 0.3;
  request.max_noise = 1e9;
  const TimeReply reply = worker().time(request);
  INFO(reply.detail);
  REQUIRE(reply.status == Status::pass);
  REQUIRE(reply.lanes.size() == request.lanes.size());
  CHECK(reply.l2_bytes > 0);
  const std::vector<uint64_t> answered = worker().run(ask("slow")).out_hash;
  for (size_t i = 0; i < 4; ++i) {
    const LaneReply& lane = reply.lanes[i];
    INFO(i << " " << lane.detail);
    REQUIRE(lane.status == Status::pass);
    CHECK(lane.time_us.size() == 6);  // min_samples, and the closing one over filled outputs
    CHECK(lane.round.size() == lane.time_us.size());
    CHECK(lane.round.back() == 5);  // nobody had two samples in a round
    CHECK(lane.stop_reason == "noise");
    // Most CPUs take the inputs out of their caches; others pass them.
    CHECK((lane.cold_ratio == 0 || (request.lanes[i].cold && lane.cold_ratio >= 1)));
    if (i < 2) CHECK(lane.out_hash == std::vector<uint64_t>(lane.out_hash.size(), answered.at(0)));
    CHECK(lane.out_hash.empty() == (i >= 2));
    CHECK(lane.lse_hash.size() == lane.out_hash.size());
    const double least_us = *std::min_element(lane.time_us.begin(), lane.time_us.end());  // any other may have lost its core meanwhile
    CHECK((least_us > 2000) == (i < 2));
  }
  CHECK(reply.lanes[4].status == Status::crash);
  CHECK_THAT(reply.lanes[4].detail, ContainsSubstring("tile count 0"));
  CHECK(reply.lanes[5].status == Status::unsupported);
  CHECK(reply.lanes[6].status == Status::skipped);  // no graphs on a CPU
  CHECK_THAT(reply.lanes[6].detail, ContainsSubstring("graph replay needs a GPU"));
  CHECK(reply.lanes[7].status == Status::fail);
  CHECK_THAT(reply.lanes[7].detail, ContainsSubstring("timed launches touched what is not theirs: out: byte 16389 was written"));

  request.max_noise = 0;
  request.lanes = {{Lane::Work::kernel, "slow", false, false}};
  CHECK(worker().time(request).lanes.at(0).stop_reason == "max_time");
  request.lanes.push_back({Lane::Work::gather, "slow", false, false});  // takes far less of its own time, but is a floor
  const TimeReply beside = worker().time(request);
  REQUIRE(beside.lanes.size() == 2);
  CHECK(beside.lanes[0].stop_reason == "max_time");
  CHECK(beside.lanes[1].stop_reason == "kernels_done");
  CHECK(std::ssize(beside.lanes[1].time_us) - std::ssize(beside.lanes[0].time_us) <=
        2);  // one where it came first in the last round, and the closing one
  request.lanes = {{Lane::Work::kernel, "write_inputs", false, false}};
  const TimeReply changed = worker().time(request);
  CHECK(changed.status == Status::crash);
  CHECK_THAT(changed.detail, ContainsSubstring(" of 1024 was written"));
  next_request_works();
}
