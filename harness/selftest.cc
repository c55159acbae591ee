// SPDX-License-Identifier: Apache-2.0
#include "harness/selftest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "harness/comparator_mutants.h"
#include "harness/exit_status.h"
#include "harness/interrupt.h"
#include "harness/progress.h"
#include "kernels/mutants/mutant.h"
#include "kernels/registry.h"
#include "reports/table.h"

namespace smla {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<std::string> healthy_names(KernelGroup group, bool with_gpu) {
  std::vector<std::string> names;
  for (const smla_kernel* kernel : kernels(group))
    if (kernel->device == SMLA_DEVICE_CPU || with_gpu) names.push_back(kernel->name);
  return names;
}

Candidate candidate(const std::string& name, Worker& worker) {
  return {{name, "", find_kernel(name).device == SMLA_DEVICE_CPU ? "cpu" : "cuda"}, &worker};
}
WorkerOptions worker_with(int gpu) {
  WorkerOptions options;
  options.gpu = gpu;
  return options;
}

bool hostile(Pattern pattern) {
  constexpr Pattern kHostile[] = {Pattern::leading_invalid, Pattern::interleaved_invalid, Pattern::all_invalid,     Pattern::out_of_range,
                                  Pattern::padded,          Pattern::stale_tail,          Pattern::page_straddling, Pattern::far};
  return std::find(std::begin(kHostile), std::end(kHostile), pattern) != std::end(kHostile);
}

int64_t work(const Case& c) { return c.tokens() * c.h_q * c.topk; }

int rank(const Case& c) {
  const bool exact = c.values == Values::needle || c.values == Values::tracer || c.values == Values::exact_mean;
  if (exact && hostile(c.pattern)) return 0;
  if (exact || hostile(c.pattern)) return 1;
  return c.lens == Lens::mixed || c.pattern == Pattern::dense ? 2 : 3;
}

/// The case cut to a few rows; nothing where that contradicts what it asks.
std::optional<Case> cut(Case c, uint64_t seed) {
  c.b = std::min(c.b, 3);
  c.h_q = std::min(c.h_q, 3);
  c.s_q = std::min(c.s_q, 8);
  c.topk = std::min(c.topk, 320);
  c.s_kv = std::min(c.s_kv, 700);
  c.seed = seed;
  try {
    validate(c);
  } catch (const UsageError&) { return {}; }
  return c;
}

bool for_a_cpu(const PlannedCase& planned) {
  return std::find(planned.suite_case.tags.begin(), planned.suite_case.tags.end(), "gpu") == planned.suite_case.tags.end();
}

}  // namespace

std::vector<std::string> noticed_by(const PairResult& pair) {
  switch (pair.status()) {
    case Status::crash:
    case Status::timeout:
    case Status::oom:
      return {std::string(name_of(pair.status()))};
    case Status::fail:
      break;
    default:
      return {};
  }
  std::vector<std::string> names;
  Evidence numbers = pair.evidence;
  numbers.checks.clear();
  const Decision decision = decide(numbers);
  if (decision.out == Status::fail) names.push_back("out");
  if (decision.lse == Status::fail) names.push_back("lse");
  for (const CheckOutcome& check : pair.evidence.checks)
    if (check.ran && (!check.out_ok || !check.lse_ok)) names.emplace_back(checks()[check.check].name);
  return names;
}

void likeliest_killers_first(std::vector<PlannedCase>& plan) {
  std::stable_sort(plan.begin(), plan.end(), [](const PlannedCase& a, const PlannedCase& b) {
    return std::pair(rank(a.c()), work(a.c())) < std::pair(rank(b.c()), work(b.c()));
  });
}

std::vector<Planted> planted_kernels(const std::vector<std::string>& globs, bool with_gpu) {
  std::map<std::string, std::string> exempt;
  for (const mutants::Mutant& mutant : mutants::table()) exempt[mutant.name] = mutant.out_of_reach;
  std::vector<Planted> planted;
  for (KernelGroup group : {KernelGroup::mutant, KernelGroup::fake})
    for (const smla_kernel* kernel : kernels(group)) {
      const auto matches = [&](const std::string& glob) { return fnmatch(glob.c_str(), kernel->name, 0) == 0; };
      if (!globs.empty() && std::none_of(globs.begin(), globs.end(), matches)) continue;
      if (kernel->device != SMLA_DEVICE_CPU && !with_gpu) continue;
      planted.emplace_back();
      planted.back().name = kernel->name;
      planted.back().what = kernel->description;
      planted.back().exempt = exempt[kernel->name];
    }
  if (planted.empty()) throw NothingMatched("no planted defect matches --kernel (smla list mutants)");
  return planted;
}

void HealthyFigures::add(const RowFigures& figures) {
  ++pairs;
  z_max = std::max(z_max, figures.out.z_max);
  row_rms = std::max(row_rms, figures.z_row_rms_max);
  row_rms_share = std::max(row_rms_share, figures.row_rms_share_max);
  if (figures.pooled.rows >= Limits().pooled_min_rows) pooled_rms = std::max(pooled_rms, figures.pooled.value());
  lse_ratio = std::max(lse_ratio, figures.lse_ratio_max);
}

Selftest::Selftest(const Options& options, std::vector<PlannedCase> plan, std::vector<Planted> planted, int gpu)
    : options_(options), gpu_(gpu), plan_(std::move(plan)), planted_(std::move(planted)) {
  std::erase_if(plan_, [](const PlannedCase& planned) { return !for_a_cpu(planned); });
  if (plan_.empty()) throw NothingMatched("every case is tagged gpu: nothing for the CPU kernels that carry the defects");
  likeliest_killers_first(plan_);
}

JudgeOptions Selftest::judge_options(const std::string& list) const {
  JudgeOptions judge;
  judge.checks = parse_checks(list);
  judge.case_timeout_s = options_.case_timeout_s;
  judge.threads = options_.threads;
  return judge;
}

void Selftest::ask(const PlannedCase& planned, std::vector<Planted*> asked, const std::string& list, double start_s) {
  std::erase_if(asked, [](const Planted* p) { return p->hung; });
  if (asked.empty()) return;
  Worker worker{worker_with(gpu_)};
  std::vector<Candidate> candidates;
  for (const Planted* p : asked) candidates.push_back(candidate(p->name, worker));
  const CaseResult result = judge_case(planned, candidates, judge_options(list));
  for (size_t i = 0; i < result.pairs.size(); ++i) {
    const std::vector<std::string> by = noticed_by(result.pairs[i]);
    if (by.empty()) continue;
    Planted& p = *asked[i];
    p.row[case_id(planned.c())] = fmt::format("{}", fmt::join(by, "|"));
    p.hung = by.front() == name_of(Status::timeout);
    if (p.killed()) continue;
    p.killed_by = by.front();
    p.killing_case = to_line(planned.c());
    p.killed_at_s = now_s() - start_s;
  }
}

void Selftest::ask_healthy(const PlannedCase& planned, const std::vector<std::string>& names, const std::string& list, Worker& worker) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names) candidates.push_back(candidate(name, worker));
  const CaseResult result = judge_case(planned, candidates, judge_options(list));
  for (const PairResult& pair : result.pairs) {
    if (pair.status() == Status::mistrusted) ++mistrusted_;
    if (pair.status() == Status::mistrusted || pair.status() == Status::unsupported || pair.status() == Status::skipped) continue;
    ++healthy_pairs_;
    healthy_[{std::string(name_of(planned.c().kv_format)), std::string(name_of(planned.c().values))}].add(pair.evidence.figures);
    const std::vector<std::string> by = noticed_by(pair);
    if (!by.empty()) false_alarms_.push_back({pair.kernel, to_line(planned.c()), fmt::format("{}", fmt::join(by, "|")), pair.decision.detail()});
  }
}

void Selftest::hunt(bool stop) {
  const double start_s = now_s();
  const std::vector<std::string> built_in = healthy_names(KernelGroup::built_in, gpu_ >= 0);
  Worker healthy_worker{worker_with(gpu_)};
  Progress progress(options_.progress, static_cast<int64_t>(plan_.size()), "cases hunted");
  for (const char* list : {"quick", "all"})
    for (const PlannedCase& planned : plan_) {
      const bool first = list == std::string_view("quick");
      std::vector<Planted*> asked;
      for (Planted& p : planted_)
        if (!p.killed() || (first && !stop)) asked.push_back(&p);
      if (!first && std::none_of(asked.begin(), asked.end(), [](const Planted* p) { return p->exempt.empty(); })) return;
      progress.advance(0, to_line(planned.c()));
      ask(planned, asked, list, start_s);
      if (first) ask_healthy(planned, built_in, list, healthy_worker);
      if (interrupted()) return;
      if (first) progress.advance(1, "");
    }
}

void Selftest::sweep_healthy(int64_t pairs) {
  const std::vector<std::string> built_in = healthy_names(KernelGroup::built_in, gpu_ >= 0),
                                 variants = healthy_names(KernelGroup::variant, gpu_ >= 0);
  Worker worker{worker_with(gpu_)};
  Progress progress(options_.progress, pairs, "healthy inputs");
  size_t turn = 0;
  for (uint64_t seed = 1000; healthy_inputs_ < pairs; ++seed) {
    std::set<std::string> seen;
    for (const PlannedCase& planned : plan_) {
      const std::optional<Case> small = cut(planned.c(), seed);
      if (!small || !seen.insert(case_id(*small)).second) continue;
      if (healthy_inputs_ == pairs) return;
      PlannedCase swept = planned;
      swept.suite_case.c = *small;
      std::vector<std::string> names = built_in;  // and a quarter of the variants, in turn
      for (size_t i = 0; i < variants.size(); ++i)
        if (i % 4 == turn % 4) names.push_back(variants[i]);
      ++turn;
      ask_healthy(swept, names, "guards,inputs,written", worker);
      if (interrupted()) return;
      ++healthy_inputs_;
      progress.advance(1, "");
    }
    if (seen.empty()) throw NothingMatched("no case of the plan can be cut to a small one");
  }
}

void Selftest::hunt_with_faulty_comparators() {
  constexpr size_t kFollowed = 4;  // one escape is enough, and each follows through all cases
  std::map<std::string, std::vector<Planted>> by_case;
  for (const Planted& p : planted_)
    if (p.killed_by == "out" || p.killed_by == "lse") by_case[p.killing_case].push_back({p.name, p.what});
  for (const ComparatorMutant& mutant : comparator_mutants()) {
    const PlantedInComparator planted(mutant.defect);
    std::vector<Planted> escaping;
    const auto ask_all = [&](const PlannedCase& planned, std::vector<Planted>& asked) {
      std::vector<Planted*> pointers;
      for (Planted& p : asked) pointers.push_back(&p);
      ask(planned, pointers, "quick", now_s());
      std::erase_if(asked, [](const Planted& p) { return p.killed(); });
    };
    std::string who;
    for (size_t from = 0; who.empty() && from < plan_.size();) {
      escaping.clear();
      for (; from < plan_.size() && escaping.size() < kFollowed; ++from) {
        const auto found = by_case.find(to_line(plan_[from].c()));
        if (found == by_case.end()) continue;
        std::vector<Planted> asked = found->second;
        ask_all(plan_[from], asked);
        escaping.insert(escaping.end(), asked.begin(), asked.end());
        if (interrupted()) return;
      }
      for (size_t i = 0; i < plan_.size() && !escaping.empty(); ++i) {
        ask_all(plan_[i], escaping);
        if (interrupted()) return;
      }
      if (!escaping.empty()) who = escaping.front().name;
    }
    comparators_.emplace_back(mutant.name, who);
  }
}

std::vector<const Planted*> Selftest::survivors() const {
  std::vector<const Planted*> alive;
  for (const Planted& p : planted_)
    if (!p.killed() && p.exempt.empty()) alive.push_back(&p);
  return alive;
}

std::vector<std::vector<const Planted*>> Selftest::alike() const {
  std::map<std::map<std::string, std::string>, std::vector<const Planted*>> by_row;
  for (const Planted& p : planted_) by_row[p.row].push_back(&p);
  std::vector<std::vector<const Planted*>> groups;
  for (const auto& [row, group] : by_row)
    if (group.size() > 1) groups.push_back(group);
  return groups;
}

std::string Selftest::matrix_csv() const {
  std::map<std::string, std::string> lines;
  for (const PlannedCase& planned : plan_) lines[case_id(planned.c())] = to_line(planned.c());
  Table table{{"kernel", "case_id", "case", "noticed_by"}, {}};
  for (const Planted& p : planted_)
    for (const auto& [id, by] : p.row) table.add({p.name, id, lines.at(id), by});
  return table.csv();
}

std::string Selftest::healthy_csv() const {
  Table table{{"kv_format", "values", "pairs", "z_max", "row_rms", "row_rms_share", "pooled_rms", "lse_ratio"}, {}};
  const auto figure = [](double value) { return fmt::format("{:.9g}", value); };
  for (const auto& [key, f] : healthy_)
    table.add({key.first, key.second, fmt::format("{}", f.pairs), figure(f.z_max), figure(f.row_rms), figure(f.row_rms_share), figure(f.pooled_rms),
               figure(f.lse_ratio)});
  return table.csv();
}

}  // namespace smla
