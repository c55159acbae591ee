// SPDX-License-Identifier: Apache-2.0
// The self-test: what the harness notices of planted defects, and whether it leaves healthy kernels alone.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "harness/judge_case.h"
#include "harness/options.h"
#include "harness/selftest/comparator_mutants.h"
#include "harness/selftest/published_rules.h"
#include "reports/table.h"

namespace smla {

/// Who noticed that a kernel is wrong: "out" and "lse" (the comparator), names of checks, or a status (crash, timeout, oom). Empty: nobody did, the
/// kernel was not asked, or the case itself is mistrusted, which convicts no kernel.
std::vector<std::string> noticed_by(const PairResult& pair);

/// Small exact cases and hostile lists first, then by size: an order for all kernels that knows nothing of any one defect.
void likeliest_killers_first(std::vector<PlannedCase>& plan);

/// The case line that exposed each planted kernel when it was last looked (reports/data/selftest_killers.csv, built in). It says what to ask first
/// and nothing else: a kernel that is missing here, or survives its line, is asked every case.
const std::map<std::string, std::string>& known_killers();

/// What became of a planted kernel in one case where something noticed it.
struct Cell {
  std::vector<std::string> by;  // noticed_by()
  std::string detail;           // what is said of it: how far it goes, the first wrong element, how it crashed
  auto operator<=>(const Cell&) const = default;
};

/// case_ids of the answers that each published rule rejects.
using CasesByRule = std::vector<std::multiset<std::string>>;

/// A kernel that must not be green, and what became of it.
struct Planted {
  std::string name, what;
  std::string exempt;  // why no case of ordinary size shows it; it is asked all the same, unless the hunt stops at the first that notices
  std::string killed_by, killing_case;
  double killed_at_s = 0;           // after the start of the hunt
  std::map<std::string, Cell> row;  // of the matrix, by case_id
  CasesByRule rejected = CasesByRule(published_rules().size());
  bool alone = false;  // a fake: it may spoil its worker for whoever comes after it
  bool hung = false;   // it is not asked again: each answer costs a deadline
  bool killed() const { return !killed_by.empty(); }
};
/// Mutants and fakes of the registry; empty globs choose all. Throws NothingMatched.
std::vector<Planted> planted_kernels(const std::vector<std::string>& globs);

/// A healthy kernel that was flagged.
struct FalseAlarm {
  std::string kernel, line, by, detail;
  bool by_rows;  // by the comparator, whatever the checks said
};

/// The largest figures of healthy rows: z and rms as they are, lse over its limit.
struct HealthyFigures {
  int64_t pairs = 0;  // (kernel, case) judged
  double z_max = 0, row_rms = 0, row_rms_share = 0, pooled_rms = 0, lse_ratio = 0;
  void add(const RowFigures& figures);
};
using FormatFamily = std::pair<std::string, std::string>;  // kv_format, values

/// A defect of the comparator, and the planted kernel that escapes because of it. "" = nobody escapes: the self-test would not notice.
struct FaultyComparator {
  std::string name, escapes;
};

/// One run of the self-test: what it asks and what it found. A question is one case for some kernels; it has worker processes of its own, so that a
/// verdict depends on no other case. Questions are asked `jobs` at a time; those to kernels on a GPU run there one at a time, and are judged beside
/// the next.
class Selftest {
 public:
  /// `gpu`: ordinal of the GPU whose kernels take part; -1 = none.
  Selftest(const Options& options, int jobs, std::vector<PlannedCase> plan, std::vector<Planted> planted, int gpu);

  /// Asks every planted kernel every case, and the healthy kernels too: the built-in ones, or those that --kernel names. `stop`: a planted kernel
  /// that was noticed is not asked again, and each is asked the case that exposed it last time first.
  void hunt(bool stop);
  /// Healthy kernels and variants (of them those that --kernel names) on small cases with other seeds, until `pairs` (case, seed) were judged.
  void sweep_healthy(int64_t pairs);
  /// For each defect of the comparator itself: a planted kernel that the comparator noticed, and that escapes from all cases because of it. Without
  /// checks, which could make up for the defect. After hunt().
  void hunt_with_faulty_comparators();

  const std::vector<PlannedCase>& plan() const { return plan_; }
  const std::vector<Planted>& planted() const { return planted_; }
  const std::vector<FalseAlarm>& false_alarms() const { return false_alarms_; }
  const std::vector<FaultyComparator>& comparators() const { return comparators_; }
  int64_t healthy_pairs() const { return healthy_pairs_; }    // (kernel, case, seed) judged
  int64_t healthy_inputs() const { return healthy_inputs_; }  // (case, seed)
  int64_t mistrusted() const { return mistrusted_; }          // small cases that could expose no impostor: they count for nothing
  std::vector<const Planted*> survivors() const;
  /// Planted kernels that no cell of the matrix tells apart; in groups of two and more.
  std::vector<std::vector<const Planted*>> alike() const;

  /// Acceptance rules in use, ours last, on the base runs of hunt(): planted defects noticed in some case, cells of the matrix, and healthy (kernel,
  /// case) rejected. A rule notices nothing where it rejects a healthy answer, too. A planted kernel that crashes or hangs is noticed by all.
  Table rules() const;
  /// Columns: kernel, case_id, case, noticed_by, detail. One row a cell in which something noticed.
  std::string matrix_csv() const;
  /// Columns: kernel, noticed_by, case: the form of known_killers().
  std::string killers_csv() const;
  /// What a suite can do without. Columns: case_id, case, noticed, alone, adds_defects, adds: how many planted kernels the case exposes; how many no
  /// other case does; for how many (planted kernel, KV format) a greedy cover of all takes it, since a kernel may take one format only; and for how
  /// many elements one that also wants every value of the axes. 0 = the cover does without it. Cases that are timed are in both.
  std::string cases_csv() const;
  /// Columns: kv_format, values, pairs, z_max, row_rms, row_rms_share, pooled_rms, lse_ratio.
  std::string healthy_csv() const;

 private:
  using Tasks = std::vector<std::function<void(int job)>>;
  void run(const char* what, const Tasks& tasks) const;
  void ask(const PlannedCase& planned, std::vector<Planted*> asked, bool stop, RowHook defect = nullptr);
  /// `kernels`: of one device each, like `asked`.
  void ask_healthy(const PlannedCase& planned, const std::vector<std::string>& kernels, const std::string& checks, int job);
  /// Held while kernels run, if they do so on the GPU. `worker` has opened it by then: that takes longer than most questions.
  std::unique_lock<std::mutex> turn(const PlannedCase& planned, const std::string& kernel, Worker& worker);
  bool escapes(const Planted& planted, const RowHook& defect);
  JudgeOptions judge_options(const std::string& checks) const;

  const Options& options_;
  const int jobs_, gpu_;
  const double start_s_;
  std::vector<PlannedCase> plan_;
  bool watch_rules_ = false;                              // in hunts that do not stop: it costs as much as judging
  std::vector<std::unique_ptr<Worker>> healthy_workers_;  // one a job, and one for the GPU; kept: healthy kernels spoil nothing
  std::shared_ptr<FirstLaunches> healthy_first_ = std::make_shared<FirstLaunches>();
  std::mutex gpu_mutex_;  // kernels of several processes would share the GPU by turns of milliseconds
  std::mutex mutex_;      // of all that follows, while questions are out
  std::vector<Planted> planted_;
  std::vector<FalseAlarm> false_alarms_;
  std::map<FormatFamily, HealthyFigures> healthy_;
  std::vector<FaultyComparator> comparators_;
  CasesByRule healthy_rejected_ = CasesByRule(published_rules().size());
  int64_t healthy_pairs_ = 0, healthy_inputs_ = 0, mistrusted_ = 0;
};

}  // namespace smla
