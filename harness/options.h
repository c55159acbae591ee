// SPDX-License-Identifier: Apache-2.0
// Flags of the program: one struct, and the groups of flags that verbs share.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace smla {

struct Case;

enum class ProgressKind : int32_t { automatic, plain, none };
enum class Accept : int32_t { declared, reference };  // whose precision judges: what the kernel declared, or P and out in q's type and the rest exact
enum class CacheState : int32_t { cold, warm, both };
enum class Timing : int32_t { event, graph, both };  // on a GPU; a CPU knows the wall clock only

struct Options {
  std::string verb, command;  // command: as it was called, in shell words
  // choosing
  std::vector<std::string> suites, cases_files, case_lines, kernels, filters, skips, sets;
  std::string plugin;
  std::vector<std::string> pythons;
  int shard_index = 1, shard_count = 1;
  std::string what, what_file;  // smla list WHAT [FILE]
  std::string arch;             // smla list support: of a GPU of this architecture, here or not
  // checking
  std::string checks = "quick";
  int64_t oracle_rows = 0;  // 0 = all
  int determinism = 2;      // runs compared bit by bit, where declared
  Accept accept = Accept::declared;
  // timing
  CacheState cache = CacheState::cold;
  Timing timing = Timing::event;
  int min_samples = 0;   // 0: 20 on a GPU, 5 on a CPU
  double max_noise = 0;  // 0: 0.005 on a GPU, 0.02 on a CPU
  double max_time_s = 1;
  std::string benchmark_out, benchmark_format = "console", benchmark_filter;
  // running
  std::vector<int> gpus;
  bool all_gpus = false;                       // --gpu all; harness/cards.h
  std::function<bool(const Case&)> keep_case;  // one card's share; empty: all
  double case_timeout_s = 60;
  int threads = 0;                          // of kernels and oracle; 0 = all
  std::string out = "reports/out", resume;  // resume: the OUT of the run to go on with
  bool retry = false;                       // of that run, what ended in crash, timeout or oom is asked again
  bool dump_failed = false;                 // captures of what failed go to OUT/<arch>/failed
  ProgressKind progress = ProgressKind::automatic;
  bool verbose = false, quiet = false;
};

/// Groups of flags, joined by `|`.
enum FlagGroup : unsigned { kChoosing = 1, kChecking = 2, kTiming = 4, kRunning = 8, kListing = 16, kResuming = 32 };

/// Parses the flags of a verb, argv[0] being its name. Returns false after --help was printed. Throws UsageError: an unknown flag names the nearest
/// known one.
bool parse_flags(const char* what, unsigned groups, Options& options, int argc, char** argv);

/// smla selftest.
struct SelftestFlags {
  bool quick = false;     // stop at the first that notices a planted defect; no sweep of healthy kernels
  bool which = false;     // only tell, for each planted defect, the case that exposes it
  bool rules = false;     // only compare acceptance rules in use elsewhere with this one
  int jobs = 0;           // questions at a time; 0 = one a core
  int64_t pairs = 10000;  // (case, seed) of the sweep of healthy kernels
};
bool parse_flags(SelftestFlags& flags, Options& options, int argc, char** argv);

/// smla capture CASE FILE.
struct CaptureFlags {
  std::string line, file;
};
bool parse_flags(CaptureFlags& flags, Options& options, int argc, char** argv);

/// smla replay FILE.
struct ReplayFlags {
  std::string file, contract;  // contract: words that replace those of the file
  int64_t rows = 8;            // so many of the worst are named
  Accept accept = Accept::declared;
  int threads = 0;
};
bool parse_flags(ReplayFlags& flags, int argc, char** argv);

/// smla compare A B.
struct CompareFlags {
  std::string a, b;                // throughput.csv, the folder that holds it, or a kernel
  std::string in = Options().out;  // the report that two kernels are looked up in
  std::optional<double> margin;    // else that of CompareOptions
  std::string csv, markdown;
};
bool parse_flags(CompareFlags& flags, int argc, char** argv);

/// smla gate --baseline DIR.
struct GateFlags {
  std::string baseline, out = Options().out, known_issues, markdown, junit;
  std::optional<double> max_loss, noise_factor;  // else those of GateOptions
  bool accuracy_only = false, update_baseline = false;
};
bool parse_flags(GateFlags& flags, int argc, char** argv);

/// One shell word.
std::string shell_quote(const std::string& text);

/// The flags beyond the choice of cases and kernels on which the answers of a run rest: a run is resumed only by one that agrees in them.
std::string asked_flags(const Options& options);

/// The command that goes on with this run.
std::string resume_command(const Options& options);

/// The flags beyond case and kernel that a reproducer must carry to ask the same question again, with a leading space each.
std::string reproducer_flags(const Options& options);

}  // namespace smla
