// SPDX-License-Identifier: Apache-2.0
#include "harness/verbs/verbs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include "cases/words.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
#include "harness/progress.h"
#include "harness/rerun.h"
#include "harness/worker.h"
#include "reports/env.h"

namespace smla {
namespace {

constexpr Verb kVerbs[] = {
    {"list", "cases, kernels, suites, patterns, support, checks, mutants or indices; runs nothing", verb_list},
    {"check", "accuracy: every kernel against the fp64 oracle, and the checks beside it", verb_check},
    {"bench", "throughput of kernels that passed the same case first", verb_bench},
    {"run", "check, then bench, both reports: the main job", verb_run},
    {"compare", "two reports, or two kernels of one report, side by side", verb_compare},
    {"gate", "a run against a reviewed baseline; the exit status is the answer", verb_gate},
    {"capture", "one case with a kernel's answer, as a safetensors file", verb_capture},
    {"replay", "a captured call judged by the oracle; names the worst rows", verb_replay},
    {"selftest", "planted defects that must be noticed, healthy kernels that must not be", verb_selftest},
    {"device", "what is here: cores, memory, measured peaks", verb_device},
    {"worker", "(internal) the process that holds a kernel", worker_main},
};

void print_help() {
  fmt::print(
      "a correctness and performance harness for sparse MLA attention kernels\n\nusage: {0} VERB [flags]     {0} VERB --help     {0} --version\n\n",
      started_as());
  for (const Verb& verb : kVerbs) fmt::print("  {:10} {}\n", verb.name, verb.what);
}

/// One line that a report of a fault can quote.
void print_version() {
  const BuildInfo& build = build_info();
  const std::string commit =
      build.git_commit.empty() ? "outside git" : build.git_commit.substr(0, 12) + (build.git_dirty.value_or(false) ? " with changes" : "");
  fmt::print("smla {} ({}), {}, {}, built for {}\n", build.tool_version, commit, build.compiler, build.build_type, SMLA_BUILT_FOR);
}

/// Else the next file that is opened would take their places, and what is printed would go into it.
void open_standard_streams() {
  bool closed[3];
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    closed[stream] = fcntl(stream, F_GETFD) < 0;
    if (closed[stream]) open("/dev/null", O_RDWR);  // gets the lowest number that is free
  }
  if (closed[STDOUT_FILENO]) throw UsageError("stdout is closed: where nobody reads it, send it to /dev/null");
}

/// Threads have stacks of that size, too. The suite `quick` needs some 200 KiB; a driver and kernels of others want theirs.
void need_stack() {
  constexpr rlim_t kLeast_kib = 1024;
  rlimit stack;
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur / 1024 < kLeast_kib)
    throw CannotStart(fmt::format("a run needs {} KiB of stack, ulimit -s allows {}", kLeast_kib, stack.rlim_cur / 1024));
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    print_help();
    return kUsage;
  }
  const std::string_view word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") {
    print_help();
    return kAllGreen;
  }
  if (word == "--version") {
    print_version();
    return kAllGreen;
  }
  for (const Verb& verb : kVerbs)
    if (verb.name == word) {
      if (verb.main != worker_main) mark_descendants();  // a worker's are its parent's
      return verb.main(argc - 1, argv + 1);
    }
  std::vector<std::string_view> names;
  for (const Verb& verb : kVerbs) names.push_back(verb.name);
  throw_unknown_value("verb", word, names.data(), names.size());
}

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

int smla_main(int argc, char** argv) {
  const auto failed = [](const std::exception& e, int status) {
    std::fflush(stdout);
    tell(e.what());
    return status;
  };
  signal(SIGXFSZ, SIG_IGN);  // a file at its limit (ulimit -f) is then told like a full disk
  try {
    open_standard_streams();
    need_stack();
    const int status = dispatch(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    std::clearerr(stdout);  // the write that failed is long ago, and errno with it
    std::putchar('\n');
    std::fflush(stdout);
    throw UsageError(fmt::format("cannot write to stdout: {}", std::strerror(errno)));
  } catch (const Interrupted& e) { return failed(e, 128 + interrupted()); } catch (const UsageError& e) {
    return failed(e, kUsage);
  } catch (const CannotStart& e) { return failed(e, kNothingCouldStart); } catch (const NothingMatched& e) {
    return failed(e, kNothingMatched);
  } catch (const std::bad_alloc&) {
    return failed(CannotStart("out of memory (a limit of this shell's: ulimit -v)"), kNothingCouldStart);
  } catch (const std::filesystem::filesystem_error& e) {
    return failed(UsageError(fmt::format("{}: {}", e.path1().string(), e.code().message())), kUsage);
  } catch (const std::system_error& e) {
    const bool limited = e.code() == std::errc::resource_unavailable_try_again || e.code() == std::errc::too_many_files_open ||
                         e.code() == std::errc::not_enough_memory;
    return failed(CannotStart(fmt::format("the system refuses what a run needs: {}{}", e.what(),
                                          limited ? " (limits of this shell: ulimit -n files, -u processes, -v memory)" : "")),
                  kNothingCouldStart);
  } catch (const std::exception& e) { return failed(e, kCorrectnessRed); }
}

}  // namespace smla
