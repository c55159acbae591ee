// SPDX-License-Identifier: Apache-2.0
#include "harness/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cases/words.h"
#include "harness/flags.h"
#include "harness/rerun.h"
#include "harness/verbs/verb_flags.h"

namespace smla {
namespace {

void parse_shard(const std::string& text, Options& options) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || text.find_first_not_of("0123456789/") != text.npos || text.find('/', slash + 1) != text.npos)
    throw UsageError(fmt::format("--shard {}: want i/n, for example 1/4", text));
  const int64_t i = parse_count("--shard", std::string_view(text).substr(0, slash), 1, INT32_MAX);
  const int64_t n = parse_count("--shard", std::string_view(text).substr(slash + 1), 1, INT32_MAX);
  if (i > n) throw UsageError(fmt::format("--shard {}: the shards are 1/{} to {}/{}", text, n, n, n));
  options.shard_index = static_cast<int>(i);
  options.shard_count = static_cast<int>(n);
}

void parse_gpus(const std::string& text, Options& options) {
  options.all_gpus = text == "all";
  options.gpus.clear();
  for (size_t from = 0; !options.all_gpus && from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    options.gpus.push_back(static_cast<int>(parse_count("--gpu", std::string_view(text).substr(from, comma - from), 0, INT32_MAX)));
    from = comma + 1;
  }
}

void add_cases(Flags& flags, Options& options) {
  flags.group("Cases");
  flags.texts("--suite", options.suites, "NAME", "a built-in suite: quick, regression, throughput, stress", "quick, if no case is chosen");
  flags.texts("--cases", options.cases_files, "FILE.toml", "a suite of your own");
  flags.texts("--case", options.case_lines, "LINE", "one case line");
  flags.texts("--set", options.sets, "key=v1,v2", "replace a key of every case by each value: a product");
  flags.texts("--filter", options.filters, "REGEX", "keep cases whose line matches all of these");
  flags.texts("--skip", options.skips, "REGEX", "drop cases whose line matches any of these");
  flags.parsed("--shard", "i/n", "the i-th of n parts of the cases, by case hash, i from 1", "1/1",
               [&](const std::string& text) { parse_shard(text, options); });
}

void add_kernel_globs(Flags& flags, Options& options, const std::string& by_default) {
  flags.texts("--kernel", options.kernels, "GLOB", "kernels by name", by_default);
}

void add_kernels(Flags& flags, Options& options, const std::string& by_default = "your own, else the built-in ones") {
  flags.group("Kernels");
  add_kernel_globs(flags, options, by_default);
  flags.text("--plugin", options.plugin, "FILE.so", "a shared library with kernels of your own");
  flags.texts("--python", options.pythons, "FILE.py:FUNCTION",
              "a kernel of your own in Python, with words of its contract behind it if you like (harness/python)");
}

void add_checks(Flags& flags, Options& options) {
  flags.text("--checks", options.checks, "LIST", "quick, all, none, or names joined by commas: smla list checks");
}

void add_accept(Flags& flags, Accept& accept) {
  flags.word("--accept", accept, {"declared", "reference"}, "judge by the precision that the kernel declares, or by the reference declaration");
}

void add_checking(Flags& flags, Options& options) {
  flags.group("Checking");
  add_checks(flags, options);
  flags.parsed("--oracle-rows", "all|N", "judge so many rows (query token, head) of a case; first, last and special ones always", "all",
               [&](const std::string& text) { options.oracle_rows = text == "all" ? 0 : parse_count("--oracle-rows", text, 1); });
  flags.count("--determinism", options.determinism, 1, "runs that must agree bit by bit where determinism is declared");
  add_accept(flags, options.accept);
}

void add_timing(Flags& flags, Options& options) {
  flags.group("Timing");
  flags.word("--cache", options.cache, {"cold", "warm", "both"}, "state of the cache before a timed call");
  flags.word("--timing", options.timing, {"event", "graph", "both"}, "single calls between events, replayed graphs of many calls, or both (GPU)");
  flags.count("--min-samples", options.min_samples, 1, "so many samples before sampling may stop for being quiet",
              fmt::format("{} on a GPU, {} on a CPU", kMinSamples[1], kMinSamples[0]));
  flags.share("--max-noise", options.max_noise, 1, "stop when half of the median's 95 % interval is under this share of the median",
              fmt::format("{} on a GPU, {} on a CPU", share_text(kMaxNoise[1]), share_text(kMaxNoise[0])));
  flags.seconds("--max-time", options.max_time_s, "stop after so many seconds a kernel, timing and cache state of a case");
  flags.text("--benchmark_out", options.benchmark_out, "FILE", "as in Google Benchmark", "benchmark.json beside the report");
  flags.word("--benchmark_format", options.benchmark_format, {"console", "json", "csv"}, "as in Google Benchmark");
  flags.text("--benchmark_filter", options.benchmark_filter, "REGEX", "as in Google Benchmark");
}

void add_gpus(Flags& flags, Options& options, const std::string& what) {
  flags.parsed("--gpu", "LIST|all", "GPUs by ordinal, joined by commas" + what, "0", [&](const std::string& text) { parse_gpus(text, options); });
}

void add_one_gpu(Flags& flags, Options& options) {
  flags.parsed("--gpu", "N", "the GPU by its ordinal", "0",
               [&](const std::string& text) { options.gpus = {static_cast<int>(parse_count("--gpu", text, 0, INT32_MAX))}; });
}

void add_waiting(Flags& flags, Options& options) {
  flags.seconds("--case-timeout", options.case_timeout_s, "a worker that answers nothing for so long is killed");
}

void add_threads(Flags& flags, int& threads, const std::string& by_default) {
  flags.count("--threads", threads, 1, "threads of CPU kernels and of the oracle", by_default);
}

void add_out(Flags& flags, Options& options) { flags.text("--out", options.out, "DIR", "where the reports go: DIR/<arch>/"); }

void add_progress(Flags& flags, Options& options) {
  flags.word("--progress", options.progress, {"auto", "plain", "none"}, "a bar on a terminal (auto), lines (plain), nothing");
}

void add_reporting(Flags& flags, Options& options) {
  add_out(flags, options);
  flags.word("--dump", options.dump, {"none", "failed"}, "what goes to OUT/<arch>/failed as a capture (smla replay)");
  add_progress(flags, options);
  flags.flag("-v,--verbose", options.verbose, "every pair a line, and where the time went");
  flags.flag("-q,--quiet", options.quiet, "only what is not green, and the tail");
}

void add_resuming(Flags& flags, Options& options) {
  flags.text("--resume", options.resume, "DIR",
             "go on with the last run in DIR (its --out) where it ended; verb, cases, kernels and flags as they were then");
  flags.flag("--retry", options.retry, "with --resume: ask again what ended in crash, timeout or oom");
}

}  // namespace

bool parse_flags(const char* what, unsigned groups, Options& options, int argc, char** argv) {
  options.verb = argv[0];
  options.program = options.command = started_as();
  for (int i = 0; i < argc; ++i) options.command += " " + shell_quote(argv[i]);
  Flags flags(what, options.program, options.verb);
  if (groups & kIndexFile) flags.positional("FILE", options.index_file, "an .npy file of positions, as pattern=file:FILE takes it");
  if (groups & kArch) flags.text("--arch", options.arch, "sm_120", "on a GPU of this architecture, whether one is here or not", "of the GPU here");
  if (groups & kCases) add_cases(flags, options);
  if (groups & kKernels) add_kernels(flags, options);
  if (groups & kKernelList) add_kernels(flags, options, "all");
  if (groups & kChecking) add_checking(flags, options);
  if (groups & kTiming) add_timing(flags, options);
  flags.group("Running");
  if (groups & kGpus) add_gpus(flags, options, groups & kCases ? ": each case is pinned to one by its hash, one works at a time" : "");
  if (groups & kOneGpu) add_one_gpu(flags, options);
  if (groups & kWaiting) add_waiting(flags, options);
  if (groups & kThreads) add_threads(flags, options.threads, "all cores");
  if (groups & kReporting) add_reporting(flags, options);
  if (groups & kResuming) add_resuming(flags, options);
  if (!flags.parse(argc, argv)) return false;
  if (options.retry && options.resume.empty()) throw UsageError("--retry: of which run? It needs --resume DIR");
  if (!options.resume.empty()) {
    if (flags.given("--out") && options.out != options.resume)
      throw UsageError(fmt::format("--resume {}: goes on there, not in --out {}", options.resume, options.out));
    options.out = options.resume;
  }
  options.go_on = options.resume.empty() ? fmt::format("{} --resume {}", options.command, shell_quote(options.out)) : options.command;
  return true;
}

bool parse_flags(SelftestFlags& asked, Options& options, int argc, char** argv) {
  options.program = started_as();
  Flags flags("planted defects that must be noticed, healthy kernels that must not be", options.program, argv[0]);
  flags.group("Self-test");
  flags.flag("--quick", asked.quick, "ask a planted defect until something notices it, and sweep no healthy kernels");
  flags.flag("--which", asked.which, "only tell the case, and the check, that exposes each planted defect");
  flags.flag("--rules", asked.rules, "only compare the acceptance rules of other projects with this one, on the same kernels and cases");
  add_checks(flags, options);
  flags.flag("--causes", options.causes, "also look for what wrong rows look like, as check does; takes several times as long");
  flags.count("--jobs", asked.jobs, 1, "questions at a time", "one a core; with a GPU 1");
  flags.count("--pairs", asked.pairs, 1, "so many (case, seed) of healthy kernels");
  add_cases(flags, options);
  add_kernel_globs(flags, options, "all planted and healthy ones");
  flags.group("Running");
  add_one_gpu(flags, options);
  add_waiting(flags, options);
  add_threads(flags, options.threads, "1 a question");
  add_out(flags, options);
  add_progress(flags, options);
  if (!flags.parse(argc, argv)) return false;
  flags.excludes("--quick", {"--which", "--rules", "--pairs", "--causes"}, "asks a planted defect until something notices it");
  flags.excludes("--which", {"--rules", "--pairs", "--causes"}, "tells who notices each planted defect");
  flags.excludes("--rules", {"--pairs", "--causes"}, "compares rules");
  if (asked.rules && !flags.given("--checks")) options.checks = "none";  // rules judge answers
  return true;
}

bool parse_flags(CaptureFlags& asked, Options& options, int argc, char** argv) {
  options.program = started_as();
  Flags flags("runs a case and writes inputs, out and lse to a safetensors file; by the first chosen kernel that answers it", options.program,
              argv[0]);
  flags.positional("CASE", asked.line, "a case line, in quotes");
  flags.positional("FILE", asked.file, "FILE.safetensors, replaced");
  add_kernels(flags, options);
  flags.group("Running");
  add_one_gpu(flags, options);
  add_waiting(flags, options);
  add_threads(flags, options.threads, "all cores");
  return flags.parse(argc, argv);
}

bool parse_flags(ReplayFlags& asked, int argc, char** argv) {
  Flags flags("judges a captured call by the oracle and names the worst rows; exit status 1: it is wrong", started_as(), argv[0]);
  flags.positional("FILE", asked.file, "FILE.safetensors, of smla capture or of a serving engine (harness/python/README.md)");
  flags.text("--contract", asked.contract, "WORDS", "what the kernel declares, for example 'lse_base=two p=bf16'", "what the file says");
  flags.count("--rows", asked.rows, 0, "name so many of the worst rows");
  add_accept(flags, asked.accept);
  add_threads(flags, asked.threads, "all cores");
  return flags.parse(argc, argv);
}

bool parse_flags(CompareFlags& asked, int argc, char** argv) {
  Flags flags("two reports, or two kernels of one report, side by side: ratio of medians, interval, verdict", started_as(), argv[0]);
  flags.positional("A", asked.a, "a throughput.csv, the folder of one (DIR, DIR/<arch>, DIR/gpuN/<arch>), or a kernel");
  flags.positional("B", asked.b, "what is compared with it");
  flags.text("--in", asked.in, "DIR", "of two kernels: the report that they are in, DIR, DIR/<arch> or, of several cards, DIR/gpuN/<arch>");
  flags.share("--margin", asked.margin, 1, "a difference in time surely larger than this share is faster or slower");
  flags.text("--csv", asked.csv, "FILE", "write the table as CSV too; - is stdout, instead of the text");
  flags.text("--markdown", asked.markdown, "FILE", "write the tables as Markdown too");
  if (!flags.parse(argc, argv)) return false;
  asked.in_given = flags.given("--in");
  return true;
}

bool parse_flags(GateFlags& asked, int argc, char** argv) {
  Flags flags("a run against a reviewed baseline: exit status 1 is correctness red, 2 throughput red", started_as(), argv[0]);
  flags.text("--baseline", asked.baseline, "DIR", "the reviewed reports, for example reports/baselines/sm_90; must be given");
  flags.text("--out", asked.out, "DIR", "the run: DIR, DIR/<arch> or, of several cards, DIR/gpuN/<arch>");
  flags.share("--max-loss", asked.max_loss, 10, "a time that is surely longer by more than this share of the baseline's is red");
  flags.parsed("--noise-factor", "TIMES", "... if it is also longer by more than so many times the pair's A/A noise",
               fmt::format("{:g}", asked.noise_factor), [&](const std::string& text) { asked.noise_factor = parse_times("--noise-factor", text); });
  flags.text("--known-issues", asked.known_issues, "FILE.toml", "what may be red for now", "known_issues.toml in the baseline");
  flags.text("--markdown", asked.markdown, "FILE", "write what is printed, fit for a pull request");
  flags.text("--junit", asked.junit, "FILE", "write the findings as JUnit");
  flags.flag("--accuracy-only", asked.accuracy_only, "leave times out");
  flags.flag("--update-baseline", asked.update_baseline, "put the run's rows into the baseline instead, if nothing in it is red");
  if (!flags.parse(argc, argv)) return false;
  if (asked.baseline.empty()) throw UsageError("gate: against what? It needs --baseline DIR");
  flags.excludes("--update-baseline", {"--max-loss", "--noise-factor", "--markdown", "--junit", "--accuracy-only"}, "compares nothing");
  flags.excludes("--accuracy-only", {"--max-loss", "--noise-factor"}, "leaves times out");
  return true;
}

}  // namespace smla
