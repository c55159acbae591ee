// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>

#include "cases/index_file.h"
#include "cases/needle.h"
#include "harness/cards.h"
#include "harness/checks.h"
#include "harness/exit_status.h"
#include "harness/rerun.h"
#include "harness/session.h"
#include "harness/table.h"
#include "harness/verbs/verbs.h"
#include "harness/worker/host_device.h"
#include "kernels/archs.h"
#include "kernels/mutants/mutant.h"
#include "kernels/registry.h"

namespace smla {
namespace {

/// How many of its entries a needle case asks; nothing of other cases, and of one that this machine cannot hold.
std::string needle_coverage_of(const Case& c) {
  return c.values == Values::needle && too_large(c).empty() ? coverage_text(needle_coverage(make_inputs(c))) : "";
}

/// With several GPUs, also which one a case is pinned to.
void list_cases(const Options& asked) {
  Options options = asked;
  resolve_cards(options);
  for (const PlannedCase& planned : plan_cases(options)) {
    if (options.gpus.size() > 1) fmt::print("gpu {}  ", options.gpus[card_of(options, planned.c())]);
    fmt::print("{}  {}{}\n", case_id(planned.c()), to_line(planned.c()), needle_coverage_of(planned.c()));
  }
}

/// All, or those that --kernel names.
void list_kernels(const Options& options) {
  Session session(options);
  for (const Candidate& kernel : options.kernels.empty() ? session.all() : session.chosen())
    fmt::print("{:<24} {:<5} {}\n", kernel.info.name, kernel.info.device, kernel.info.description);
}

void list_suites(const Options&) {
  for (const std::string& name : suite_names()) {
    const Suite suite = load_suite(name);
    fmt::print("{}: {} cases\n", name, suite.cases.size());
    std::map<std::string, int> seen;
    for (const SuiteCase& suite_case : suite.cases)
      if (seen[suite_case.group]++ == 0) fmt::print("  {:<24} {}\n", suite_case.group, suite_case.why);
  }
}

void list_patterns(const Options&) {
  for (std::string_view name : Names<Pattern>::kAll) fmt::print("pattern={}{}\n", name, name == name_of(Pattern::file) ? ":PATH.npy" : "");
  for (std::string_view name : Names<Values>::kAll) fmt::print("values={}\n", name);
}

void list_checks(const Options&) {
  for (const Check& check : checks())
    fmt::print("{:<12} {:<7} {}{}\n", check.name, check.quick ? "quick" : "all", check.needs_streams ? "on a GPU: " : "", check.what);
}

/// What the self-test must notice, with the public reports of the same mechanism; and the reports that no CPU kernel can carry.
void list_mutants(const Options&) {
  std::map<std::string_view, const mutants::Mutant*> table;
  for (const mutants::Mutant& mutant : mutants::table()) table[mutant.name] = &mutant;
  for (KernelGroup group : {KernelGroup::mutant, KernelGroup::fake})
    for (const smla_kernel* kernel : kernels(group)) {
      const auto found = table.find(kernel->name);
      const mutants::Mutant* mutant = found == table.end() ? nullptr : found->second;
      fmt::print("{:<36} {:<32} {}{}{}\n", kernel->name,
                 mutant                              ? mutants::base_name(mutant->base)
                 : kernel->device == SMLA_DEVICE_CPU ? ""
                                                     : "cuda",
                 kernel->description, mutant && *mutant->reports ? fmt::format("  [{}]", mutant->reports) : "",
                 mutant && *mutant->out_of_reach ? fmt::format("  exempt: {}", mutant->out_of_reach) : "");
    }
  for (const mutants::Excused& excused : mutants::excused()) fmt::print("{:<36} {:<32} no CPU kernel can: {}\n", excused.report, "", excused.why);
}

/// What real lists look like, for pages of 64.
void list_indices(const Options& options) {
  constexpr int32_t kPageSize = 64;
  const IndexStatistics s = statistics_of(read_index_file(options.index_file), kPageSize);
  const auto percent = [](int64_t part, int64_t whole) { return whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole); };
  const auto of_rows = [&](int64_t n) { return fmt::format("{} rows ({:.1f} %)", n, percent(n, s.rows)); };
  fmt::print("lists      {} rows of {} entries; positions {} to {}\n", s.rows, s.columns, s.least, s.largest);
  fmt::print("keys       {:.1f} a row, {} to {}; {} without any, {} name one twice\n", s.valid_mean, s.valid_min, s.valid_max, of_rows(s.empty_rows),
             of_rows(s.duplicate_rows));
  fmt::print("order      {} ascend; runs of consecutive positions: {:.2f} entries in the mean, {} the longest\n", of_rows(s.ascending_rows),
             s.run_mean, s.run_max);
  fmt::print("pages      of {}: {:.1f} a row, {:.2f} keys in each\n", kPageSize, s.pages_mean, s.keys_a_page);
  fmt::print("reuse      {:.1f} % of a row's keys are in the row before it\n", 100 * s.reuse);
  fmt::print("invalid    {:.2f} % of entries; behind all keys in {}, first in {}, between keys in {}\n",
             percent(s.rows * s.columns - s.valid, s.rows * s.columns), of_rows(s.tail_only_rows), of_rows(s.leading_rows),
             of_rows(s.interleaved_rows));
}

/// The matrix kernel x case, with the reason for each refusal, and its sums.
void list_support(const Options& options) {
  Session session(options);
  const int cc = options.arch.empty() ? 0 : find_arch(options.arch).cc;
  const std::vector<Candidate> kernels = cc ? session.chosen(true) : session.chosen();
  if (kernels.empty()) throw NothingMatched(fmt::format("--arch{}", without_cuda()));
  std::map<std::string, std::map<std::string, int>> sums;  // kernel, then "supported" or the reason
  for (const PlannedCase& planned : plan_cases(options)) {
    if (const std::string why = too_large(planned.c()); !why.empty()) throw CannotStart(fmt::format("'{}': {}", to_line(planned.c()), why));
    const Inputs in = make_inputs(planned.c());
    for (const Candidate& kernel : kernels) {
      const RunReply reply = kernel.worker->supports(planned.c(), kernel.info.name, cc);
      const std::string excluded = reply.status == Status::pass ? contract_excludes(reply.contract, in) : reply.detail;
      const Status status = excluded.empty() ? Status::pass : reply.status == Status::pass ? Status::unsupported : reply.status;
      const std::string_view word = status == Status::pass ? "supported" : name_of(status);
      fmt::print("{:<12} {:<24} {}{}\n", word, kernel.info.name, to_line(planned.c()), excluded.empty() ? "" : "  # " + excluded);
      ++sums[kernel.info.name][excluded.empty() ? "" : fmt::format("{}: {}", word, excluded)];
    }
  }
  if (cc) {
    const Arch& arch = find_arch(options.arch);
    fmt::print("\non {} as in {} ({} SMs, {} bytes of shared memory a block); this build has code for: {}\n", arch.name, arch.card, arch.sm_count,
               arch.smem_optin_bytes, SMLA_BUILT_FOR);
  }
  fmt::print("\n");
  for (const auto& [kernel, reasons] : sums)
    for (const auto& [reason, count] : reasons) fmt::print("{:>6} {:<24} {}\n", count, kernel, reason.empty() ? "supported" : reason);
  const auto for_gpu = [](const Candidate& kernel) { return kernel.info.device == "cuda"; };
  if (!cc && options.kernels.empty() && options.plugin.empty() && options.pythons.empty() && std::none_of(kernels.begin(), kernels.end(), for_gpu) &&
      std::any_of(session.all().begin(), session.all().end(), for_gpu))
    fmt::print("\nkernels for a GPU are left out: {}. With --arch sm_90 (or another) they are asked about one that need not be here\n",
               session.why_no_gpu());
}

struct List {
  std::string_view name;
  void (*print)(const Options&);
  unsigned flags;  // those that it heeds
  const char* what;
};
constexpr List kLists[] = {
    {"cases", list_cases, kCases | kGpus, "the case lines that are chosen, and their names; with several GPUs, which one each is pinned to"},
    {"kernels", list_kernels, kKernelList, "every kernel, or those that are chosen"},
    {"suites", list_suites, 0, "the built-in suites, and what each group of theirs is for"},
    {"patterns", list_patterns, 0, "index patterns and value families"},
    {"support", list_support, kCases | kKernels | kOneGpu | kArch, "kernel x case, with the reason of each refusal"},
    {"checks", list_checks, 0, "what is asked beside the oracle"},
    {"mutants", list_mutants, 0, "planted defects, with the public reports of their mechanism"},
    {"indices", list_indices, kIndexFile, "what the lists in an .npy file look like"},
};

void print_help(const char* verb) {
  fmt::print("expands and prints without running\n\nusage: {0} {1} [WHAT] [flags]     {0} {1} WHAT --help\n\n", started_as(), verb);
  for (const List& list : kLists) fmt::print("  {:10} {}{}\n", list.name, list.what, &list == kLists ? " (default)" : "");
}

}  // namespace

int verb_list(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "--help" || word == "-h") return print_help(argv[0]), 0;
  const bool named = !word.empty() && word.front() != '-';
  std::vector<std::string_view> names;
  for (const List& list : kLists) {
    names.push_back(list.name);
    if (list.name != (named ? word : kLists[0].name)) continue;
    std::string verb = fmt::format("{} {}", argv[0], list.name);
    std::vector<char*> words(argv + named, argv + argc);
    words[0] = verb.data();
    Options options;
    if (parse_flags(list.what, list.flags, options, static_cast<int>(words.size()), words.data())) list.print(options);
    return 0;
  }
  throw_unknown_value("list", word, names.data(), names.size());
}

}  // namespace smla
