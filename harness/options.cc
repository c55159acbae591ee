// SPDX-License-Identifier: Apache-2.0
#include "harness/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "cases/words.h"

namespace smla {
namespace {

int64_t parse_count(std::string_view flag, std::string_view text, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least)
    throw UsageError(fmt::format("{} {}: want a whole number of at least {}", flag, text, least));
  return value;
}

void parse_shard(const std::string& text, Options& options) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || text.find_first_not_of("0123456789/") != text.npos || text.find('/', slash + 1) != text.npos)
    throw UsageError(fmt::format("--shard {}: want i/n, for example 1/4", text));
  const int64_t i = parse_count("--shard", std::string_view(text).substr(0, slash), 1);
  const int64_t n = parse_count("--shard", std::string_view(text).substr(slash + 1), 1);
  if (i > n) throw UsageError(fmt::format("--shard {}: the shards are 1/{} to {}/{}", text, n, n, n));
  options.shard_index = static_cast<int>(i);
  options.shard_count = static_cast<int>(n);
}

/// An option whose text is one of `names`; a wrong word names the nearest.
template <class E>
void add_word(CLI::App& app, const std::string& flag, E& value, std::vector<std::string_view> names, const std::string& what) {
  std::string list;
  for (std::string_view name : names) list += (list.empty() ? "" : "|") + std::string(name);
  app.add_option_function<std::string>(
         flag,
         [flag, names, &value](const std::string& word) {
           for (size_t i = 0; i < names.size(); ++i)
             if (names[i] == word) {
               value = static_cast<E>(i);
               return;
             }
           throw_unknown_value(flag, word, names.data(), names.size());
         },
         what)
      ->type_name(list);
}

template <class F>
CLI::Option* add_text(CLI::App& app, const std::string& flag, const std::string& type, const std::string& what, F&& parse) {
  return app.add_option_function<std::string>(flag, parse, what)->type_name(type);
}

void add_choosing(CLI::App& app, Options& options) {
  app.option_defaults()->group("Choosing");
  app.add_option("--suite", options.suites, "a built-in suite: quick (the default), regression, throughput, stress")->allow_extra_args(false);
  app.add_option("--cases", options.cases_files, "a suite of your own")->type_name("FILE.toml")->allow_extra_args(false);
  app.add_option("--case", options.case_lines, "one case line; repeatable")->type_name("LINE")->allow_extra_args(false);
  app.add_option("--kernel", options.kernels, "kernels by name; repeatable")->type_name("GLOB")->allow_extra_args(false);
  app.add_option("--filter", options.filters, "keep cases whose line matches all of these")->type_name("REGEX")->allow_extra_args(false);
  app.add_option("--skip", options.skips, "drop cases whose line matches any of these")->type_name("REGEX")->allow_extra_args(false);
  app.add_option("--set", options.sets, "replace a key of every case by each value (a product)")->type_name("key=v1,v2")->allow_extra_args(false);
  add_text(app, "--shard", "i/n", "the i-th of n parts of the cases, by case hash, i from 1", [&](const std::string& s) { parse_shard(s, options); });
  app.add_option("--plugin", options.plugin, "a shared library with kernels of your own; its kernels are then the default choice")
      ->type_name("FILE.so");
  app.add_option("--python", options.pythons,
                 "a kernel of your own in Python, with words of its contract behind it if you like (harness/python); repeatable, default choice too")
      ->type_name("FILE.py:FUNCTION")
      ->allow_extra_args(false);
}

void add_checking(CLI::App& app, Options& options) {
  app.option_defaults()->group("Checking");
  app.add_option("--checks", options.checks, "quick, all, none, or names joined by commas (smla list checks)")->type_name("LIST");
  add_text(app, "--oracle-rows", "all|N", "judge so many rows (query token, head) of a case; first, last and special ones always",
           [&](const std::string& s) { options.oracle_rows = s == "all" ? 0 : parse_count("--oracle-rows", s, 1); });
  add_text(app, "--determinism", "N", "runs that must agree bit by bit where determinism is declared",
           [&](const std::string& s) { options.determinism = static_cast<int>(parse_count("--determinism", s, 1)); });
  add_word(app, "--accept", options.accept, {"declared", "reference"}, "judge by the precision a kernel declares, or by the reference declaration");
}

/// CLI11's own ranges print 309 digits, and let NaN through.
const CLI::Validator kPositive(
    [](std::string& text) {
      double value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool ok = error == std::errc{} && end == text.data() + text.size() && value > 0 && std::isfinite(value);
      return ok ? std::string() : "'" + text + "' is not a positive finite number";
    },
    "POSITIVE");
const CLI::Validator kFinite(
    [](std::string& text) { return text.find_first_of("nN") == std::string::npos ? std::string() : "'" + text + "' is not a finite number"; }, "");

void add_timing(CLI::App& app, Options& options) {
  app.option_defaults()->group("Timing");
  add_word(app, "--cache", options.cache, {"cold", "warm", "both"}, "state of the cache before a timed call");
  add_word(app, "--timing", options.timing, {"event", "graph", "both"}, "single calls between events, replayed graphs of many calls, or both (GPU)");
  add_text(app, "--min-samples", "N", "so many samples before sampling may stop for being quiet (20 on a GPU, 5 on a CPU)",
           [&](const std::string& s) { options.min_samples = static_cast<int>(parse_count("--min-samples", s, 1)); });
  app.add_option("--max-noise", options.max_noise,
                 "stop when half the median's 95 % interval is under this share of it (0.005 on a GPU, 0.02 on a CPU)")
      ->check(CLI::Range(0.0, 1.0) & kFinite);
  app.add_option("--max-time", options.max_time_s, "stop after so many seconds a kernel, timing and cache state of a case")->check(kPositive);
  app.add_option("--benchmark_out", options.benchmark_out, "as in Google Benchmark")->type_name("FILE");
  app.add_option("--benchmark_format", options.benchmark_format, "as in Google Benchmark")->type_name("console|json|csv");
  app.add_option("--benchmark_filter", options.benchmark_filter, "as in Google Benchmark")->type_name("REGEX");
}

void add_gpus(CLI::App& app, Options& options) {
  add_text(app, "--gpu", "LIST|all", "GPUs by ordinal, joined by commas: each case is pinned to one by its hash, one works at a time",
           [&](const std::string& text) {
             options.all_gpus = text == "all";
             options.gpus.clear();
             for (size_t from = 0; !options.all_gpus && from <= text.size();) {
               const size_t comma = std::min(text.find(',', from), text.size());
               options.gpus.push_back(static_cast<int>(parse_count("--gpu", std::string_view(text).substr(from, comma - from), 0)));
               from = comma + 1;
             }
           });
}

void add_running(CLI::App& app, Options& options) {
  app.option_defaults()->group("Running");
  add_gpus(app, options);
  app.add_option("--case-timeout", options.case_timeout_s, "seconds after which a worker that answers nothing is killed")->check(kPositive);
  add_text(app, "--threads", "N", "threads of CPU kernels and of the oracle",
           [&](const std::string& s) { options.threads = static_cast<int>(parse_count("--threads", s, 1)); });
  app.add_option("--out", options.out, "where the reports go: DIR/<arch>/")->type_name("DIR");
  app.add_option_function<std::string>(
         "--dump",
         [&](const std::string& word) {
           constexpr std::string_view names[] = {"failed"};
           if (word != names[0]) throw_unknown_value("--dump", word, names, 1);
           options.dump_failed = true;
         },
         "failed: writes what failed as captures to OUT/<arch>/failed (smla replay)")
      ->type_name("failed");
  add_word(app, "--progress", options.progress, {"auto", "plain", "none"}, "a bar on a terminal (auto), lines (plain), nothing");
  app.add_flag("-v,--verbose", options.verbose, "every pair a line, and where the time went");
  app.add_flag("-q,--quiet", options.quiet, "only what is not green, and the tail");
}

void add_resuming(CLI::App& app, Options& options) {
  app.option_defaults()->group("Running");
  app.add_option("--resume", options.resume,
                 "go on with the last run in DIR (its --out) where it ended; verb, cases, kernels and flags as they were then")
      ->type_name("DIR");
  app.add_flag("--retry", options.retry, "with --resume: ask again what ended in crash, timeout or oom");
}

/// An empty word is a variable of the caller's that was not set: "" as a folder would be the root or the folder at hand. A control character would be
/// obeyed by every terminal that the word is printed on.
void refuse_strange(const CLI::App& app) {
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 127; };
  for (const CLI::Option* option : app.get_options())
    for (const std::string& word : option->results()) {
      if (word.empty() && option->get_items_expected_max() > 0)
        throw UsageError(fmt::format("{}: {} is given, but empty", app.get_name(), option->get_name()));
      if (const auto found = std::find_if(word.begin(), word.end(), is_control); found != word.end())
        throw UsageError(fmt::format("{}: {}: character {} is a control character (code {})", app.get_name(), option->get_name(),
                                     found - word.begin() + 1, static_cast<int>(*found)));
    }
}

/// Returns false after --help was printed.
bool parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    refuse_strange(app);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ExtrasError&) {
    const std::string word = app.remaining().empty() ? "" : app.remaining().front();
    if (word.rfind("-", 0) != 0) throw UsageError(fmt::format("{}: unexpected word '{}' (smla {} --help)", app.get_name(), word, app.get_name()));
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::vector<std::string_view> views(names.begin(), names.end());
    throw_unknown_value("flag", word.substr(0, word.find('=')), views.data(), views.size());
  } catch (const CLI::ParseError& e) { throw UsageError(fmt::format("{}: {}", app.get_name(), e.what())); }
}

}  // namespace

bool parse_flags(const char* what, unsigned groups, Options& options, int argc, char** argv) {
  CLI::App app(what, argv[0]);
  options.verb = argv[0];
  options.command = "smla";
  for (int i = 0; i < argc; ++i) options.command += " " + shell_quote(argv[i]);
  if (groups & kListing) {
    app.add_option("what", options.what, "cases|kernels|suites|patterns|support|checks|mutants|indices");
    app.add_option("file", options.what_file, "indices: an .npy file of positions, as pattern=file:FILE takes it");
    app.add_option("--arch", options.arch, "support: on a GPU of this architecture, whether one is here or not")->type_name("sm_120");
    add_gpus(app, options);
  }
  if (groups & kChoosing) add_choosing(app, options);
  if (groups & kChecking) add_checking(app, options);
  if (groups & kTiming) add_timing(app, options);
  if (groups & kRunning) add_running(app, options);
  if (groups & kResuming) add_resuming(app, options);
  if (!parse(app, argc, argv)) return false;
  if (options.retry && options.resume.empty()) throw UsageError("--retry: of which run? It needs --resume DIR");
  if (!options.resume.empty()) {
    if (app.count("--out") > 0 && options.out != options.resume)
      throw UsageError(fmt::format("--resume {}: goes on there, not in --out {}", options.resume, options.out));
    options.out = options.resume;
  }
  return true;
}

bool parse_flags(SelftestFlags& flags, Options& options, int argc, char** argv) {
  CLI::App app("planted defects that must be noticed, healthy kernels that must not be", argv[0]);
  add_choosing(app, options);
  add_running(app, options);
  app.option_defaults()->group("Self-test");
  app.add_flag("--quick", flags.quick, "ask a planted defect until something notices it, and sweep no healthy kernels");
  app.add_flag("--which", flags.which, "only tell the case, and the check, that exposes each planted defect");
  app.add_flag("--rules", flags.rules, "only compare the acceptance rules of other projects with this one, on the same kernels and cases");
  app.add_option("--checks", options.checks, "quick, all, none, or names joined by commas (smla list checks)")->type_name("LIST");
  add_text(app, "--jobs", "N", "questions at a time, each with kernels and oracle on --threads threads of its own (one; default: a question a core)",
           [&](const std::string& s) { flags.jobs = static_cast<int>(parse_count("--jobs", s, 1)); });
  add_text(app, "--pairs", "N", "so many (case, seed) of healthy kernels (10000)",
           [&](const std::string& s) { flags.pairs = parse_count("--pairs", s, 1); });
  if (!parse(app, argc, argv)) return false;
  if (flags.rules && app.count("--checks") == 0) options.checks = "none";  // rules judge answers
  return true;
}

bool parse_flags(CaptureFlags& flags, Options& options, int argc, char** argv) {
  CLI::App app("runs a case and writes inputs, out and lse to a safetensors file; by the first chosen kernel that answers it", argv[0]);
  app.add_option("case", flags.line, "a case line, in quotes")->required();
  app.add_option("file", flags.file, "FILE.safetensors, replaced")->required();
  add_choosing(app, options);
  add_running(app, options);
  return parse(app, argc, argv);
}

bool parse_flags(ReplayFlags& flags, int argc, char** argv) {
  CLI::App app("judges a captured call by the oracle and names the worst rows; exit status 1: it is wrong", argv[0]);
  app.add_option("file", flags.file, "FILE.safetensors, of `smla capture` or of a serving engine (harness/python/README.md)")->required();
  app.add_option("--contract", flags.contract, "what the kernel declares, instead of the file's own words: 'lse_base=two p=bf16'")
      ->type_name("WORDS");
  add_text(app, "--rows", "N", "name so many of the worst rows (8)", [&](const std::string& s) { flags.rows = parse_count("--rows", s, 0); });
  add_word(app, "--accept", flags.accept, {"declared", "reference"}, "judge by the precision the kernel declares, or by the reference declaration");
  add_text(app, "--threads", "N", "threads of the oracle",
           [&](const std::string& s) { flags.threads = static_cast<int>(parse_count("--threads", s, 1)); });
  return parse(app, argc, argv);
}

bool parse_flags(CompareFlags& flags, int argc, char** argv) {
  CLI::App app("two reports, or two kernels of one report, side by side: ratio of medians, interval, verdict", argv[0]);
  app.add_option("a", flags.a, "a throughput.csv, the folder of one (DIR, DIR/<arch>, DIR/gpuN/<arch>), or a kernel")->required();
  app.add_option("b", flags.b, "what is compared with it")->required();
  app.add_option("--in", flags.in, "the report that the two kernels are in: DIR, DIR/<arch> or, of several cards, DIR/gpuN/<arch>")->type_name("DIR");
  app.add_option("--margin", flags.margin, "a difference surely larger than this fraction is faster or slower")
      ->check(CLI::Range(0.0, 1.0) & kFinite);
  app.add_option("--csv", flags.csv, "write the table as CSV too; - is stdout, instead of the text")->type_name("FILE");
  app.add_option("--markdown", flags.markdown, "write the tables as Markdown too")->type_name("FILE");
  return parse(app, argc, argv);
}

bool parse_flags(GateFlags& flags, int argc, char** argv) {
  CLI::App app("a run against a reviewed baseline: exit status 1 is correctness red, 2 throughput red", argv[0]);
  app.add_option("--baseline", flags.baseline, "reports/baselines/<arch>: the reviewed reports")->required()->type_name("DIR");
  app.add_option("--out", flags.out, "the run: DIR, DIR/<arch> or, of several cards, DIR/gpuN/<arch>")->type_name("DIR");
  app.add_option("--max-loss", flags.max_loss, "slower by more than this fraction is red: 0.03 is 3 %")->check(CLI::Range(0.0, 10.0) & kFinite);
  app.add_option("--noise-factor", flags.noise_factor, "... if it is also more than so many times the pair's A/A noise")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--known-issues", flags.known_issues, "what may be red for now (default: known_issues.toml in the baseline)")
      ->type_name("FILE.toml");
  app.add_option("--markdown", flags.markdown, "write what is printed, fit for a pull request")->type_name("FILE");
  app.add_option("--junit", flags.junit, "write the findings as JUnit")->type_name("FILE");
  app.add_flag("--accuracy-only", flags.accuracy_only, "leave times out");
  app.add_flag("--update-baseline", flags.update_baseline, "put the run's rows into the baseline instead, if nothing in it is red");
  return parse(app, argc, argv);
}

std::string shell_quote(const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string out = "'";
  for (char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

namespace {

std::string judging_flags(const Options& options) {
  std::string text;
  for (const std::string& python : options.pythons) text += fmt::format(" --python {}", shell_quote(python));
  if (options.checks != "quick") text += fmt::format(" --checks {}", options.checks);
  if (options.oracle_rows != 0) text += fmt::format(" --oracle-rows {}", options.oracle_rows);
  if (options.determinism != Options().determinism) text += fmt::format(" --determinism {}", options.determinism);
  if (options.accept == Accept::reference) text += " --accept reference";
  if (options.threads != 0) text += fmt::format(" --threads {}", options.threads);
  return text;
}

}  // namespace

std::string asked_flags(const Options& options) {
  std::string text = judging_flags(options);
  if (options.verb == "check") return text;
  const Options usual;
  if (options.cache != usual.cache) text += options.cache == CacheState::warm ? " --cache warm" : " --cache both";
  if (options.timing != usual.timing) text += options.timing == Timing::graph ? " --timing graph" : " --timing both";
  if (options.min_samples != usual.min_samples) text += fmt::format(" --min-samples {}", options.min_samples);
  if (options.max_noise != usual.max_noise) text += fmt::format(" --max-noise {}", options.max_noise);
  if (options.max_time_s != usual.max_time_s) text += fmt::format(" --max-time {}", options.max_time_s);
  if (!options.benchmark_filter.empty()) text += " --benchmark_filter " + shell_quote(options.benchmark_filter);
  return text;
}

std::string resume_command(const Options& options) {
  return options.resume.empty() ? fmt::format("{} --resume {}", options.command, shell_quote(options.out)) : options.command;
}

std::string reproducer_flags(const Options& options) {
  std::string text = options.plugin.empty() ? "" : " --plugin " + shell_quote(options.plugin);
  text += judging_flags(options);
  if (options.case_timeout_s != Options().case_timeout_s) text += fmt::format(" --case-timeout {:g}", options.case_timeout_s);
  return text;
}

}  // namespace smla
