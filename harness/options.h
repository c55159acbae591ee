// SPDX-License-Identifier: Apache-2.0
// What a verb that runs kernels is asked. What is peculiar to one verb: verb_flags.h.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace smla {

struct Case;

enum class ProgressKind : int32_t { automatic, plain, none };
enum class Accept : int32_t { declared, reference };  // whose precision judges: what the kernel declared, or P and out in q's type and the rest exact
enum class CacheState : int32_t { cold, warm, both };
enum class BenchmarkFormat : int32_t { console, json, csv };
enum class Dump : int32_t { none, failed };          // captures go to OUT/<arch>/failed
enum class Timing : int32_t { event, graph, both };  // on a GPU; a CPU knows the wall clock only

struct Options {
  std::string verb;
  std::string program = "smla", command, go_on;  // in shell words: as it was started, as it was called, and what goes on with that run
  // choosing
  std::vector<std::string> suites, cases_files, case_lines, kernels, filters, skips, sets;
  std::string plugin;
  std::vector<std::string> pythons;
  int shard_index = 1, shard_count = 1;
  std::string index_file;  // smla list indices
  std::string arch;        // smla list support: of a GPU of this architecture, here or not
  // checking
  std::string checks = "quick";
  int64_t oracle_rows = 0;  // 0 = all
  int determinism = 2;      // runs compared bit by bit, where declared
  bool causes = false;      // are looked for by the self-test, too
  Accept accept = Accept::declared;
  // timing
  CacheState cache = CacheState::cold;
  Timing timing = Timing::event;
  int min_samples = 0;   // 0: kMinSamples
  double max_noise = 0;  // a fraction; 0: kMaxNoise
  double max_time_s = 1;
  std::string benchmark_out, benchmark_filter;
  BenchmarkFormat benchmark_format = BenchmarkFormat::console;
  // running
  std::vector<int> gpus;
  bool all_gpus = false;                       // --gpu all; harness/cards.h
  std::function<bool(const Case&)> keep_case;  // one card's share; empty: all
  double case_timeout_s = 60;
  int threads = 0;                          // of kernels and oracle; 0 = all
  std::string out = "reports/out", resume;  // resume: the OUT of the run to go on with
  bool retry = false;                       // of that run, what ended in crash, timeout or oom is asked again
  Dump dump = Dump::none;
  ProgressKind progress = ProgressKind::automatic;
  bool verbose = false, quiet = false;
};

/// Where no flag says so, by whether it is a GPU.
constexpr int kMinSamples[] = {5, 20};
constexpr double kMaxNoise[] = {0.02, 0.005};

/// Groups of flags, joined by `|`: a verb takes those that it heeds, and no other.
enum FlagGroup : unsigned {
  kCases = 1,
  kKernels = 2,
  kChecking = 4,
  kTiming = 8,
  kOneGpu = 16,
  kGpus = 32,
  kWaiting = 64,
  kThreads = 128,
  kReporting = 256,
  kResuming = 512,
  kArch = 1024,
  kIndexFile = 2048,
  kKernelList = 4096,
  kRunning = kCases | kKernels | kGpus | kWaiting | kThreads | kReporting,
};

/// Parses the flags of a verb, argv[0] being its name. Returns false after --help was printed. Throws UsageError: an unknown flag names the nearest
/// known one.
bool parse_flags(const char* what, unsigned groups, Options& options, int argc, char** argv);

}  // namespace smla
