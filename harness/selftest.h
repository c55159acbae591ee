// SPDX-License-Identifier: Apache-2.0
// The self-test: what the harness notices of planted defects, and whether it leaves healthy kernels alone.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "harness/judge_case.h"
#include "harness/options.h"

namespace smla {

/// Who noticed that a kernel is wrong: "out" and "lse" (the comparator), names of checks, or a status (crash, timeout, oom). Empty: nobody did, the
/// kernel was not asked, or the case itself is mistrusted, which convicts no kernel.
std::vector<std::string> noticed_by(const PairResult& pair);

/// Small exact cases and hostile lists first, then by size: an order for all kernels that knows nothing of any one defect.
void likeliest_killers_first(std::vector<PlannedCase>& plan);

/// A kernel that must not be green, and what became of it.
struct Planted {
  std::string name, what;
  std::string exempt;  // why no case of ordinary size shows it; it is asked all the same
  std::string killed_by, killing_case;
  double killed_at_s = 0;                  // after the start of the hunt
  std::map<std::string, std::string> row;  // of the matrix: what noticed it, joined by |, by case_id; only where something did
  bool hung = false;                       // it is not asked again: each answer costs a deadline
  bool killed() const { return !killed_by.empty(); }
};
/// Mutants and fakes of the registry; empty globs choose all. Those for a GPU only with one. Throws NothingMatched.
std::vector<Planted> planted_kernels(const std::vector<std::string>& globs, bool with_gpu);

/// A healthy kernel that was flagged.
struct FalseAlarm {
  std::string kernel, line, by, detail;
};

/// The largest figures of healthy rows, as shares of nothing: z and rms as they are, lse over its limit.
struct HealthyFigures {
  int64_t pairs = 0;  // (kernel, case) judged
  double z_max = 0, row_rms = 0, row_rms_share = 0, pooled_rms = 0, lse_ratio = 0;
  void add(const RowFigures& figures);
};
using FormatFamily = std::pair<std::string, std::string>;  // kv_format, values

/// One run of the self-test: what it asks and what it found. Every case has worker processes of its own, so that a verdict depends on no other case.
class Selftest {
 public:
  /// `gpu`: ordinal of the GPU whose kernels take part; -1 = none.
  Selftest(const Options& options, std::vector<PlannedCase> plan, std::vector<Planted> planted, int gpu);

  /// Asks every planted kernel the cases in order, first with the quick checks, then those that are left with all checks. `stop`: a planted kernel
  /// that was noticed is not asked again. Healthy built-in kernels are asked every case too.
  void hunt(bool stop);
  /// Healthy kernels and variants on small cases with other seeds, until `pairs` (case, seed) were judged.
  void sweep_healthy(int64_t pairs);
  /// For each defect of the comparator itself: a planted kernel that escapes because of it, from all cases; "" = nobody noticed.
  void hunt_with_faulty_comparators();

  const std::vector<PlannedCase>& plan() const { return plan_; }
  const std::vector<Planted>& planted() const { return planted_; }
  const std::vector<FalseAlarm>& false_alarms() const { return false_alarms_; }
  const std::map<FormatFamily, HealthyFigures>& healthy() const { return healthy_; }
  const std::vector<std::pair<std::string, std::string>>& comparators() const { return comparators_; }
  int64_t healthy_pairs() const { return healthy_pairs_; }    // (kernel, case, seed) judged
  int64_t healthy_inputs() const { return healthy_inputs_; }  // (case, seed)
  int64_t mistrusted() const { return mistrusted_; }          // small cases that could expose no impostor: they count for nothing
  std::vector<const Planted*> survivors() const;
  /// Planted kernels that no cell of the matrix tells apart; in groups of two and more.
  std::vector<std::vector<const Planted*>> alike() const;
  /// Columns: kernel, case_id, case, noticed_by. One row a cell in which something noticed.
  std::string matrix_csv() const;
  /// Columns: kv_format, values, pairs, z_max, row_rms, row_rms_share, pooled_rms, lse_ratio.
  std::string healthy_csv() const;

 private:
  void ask(const PlannedCase& planned, std::vector<Planted*> asked, const std::string& checks, double start_s);
  void ask_healthy(const PlannedCase& planned, const std::vector<std::string>& kernels, const std::string& checks, class Worker& worker);
  JudgeOptions judge_options(const std::string& checks) const;

  const Options& options_;
  const int gpu_;
  std::vector<PlannedCase> plan_;
  std::vector<Planted> planted_;
  std::vector<FalseAlarm> false_alarms_;
  std::map<FormatFamily, HealthyFigures> healthy_;
  std::vector<std::pair<std::string, std::string>> comparators_;  // defect, who escapes
  int64_t healthy_pairs_ = 0, healthy_inputs_ = 0, mistrusted_ = 0;
};

}  // namespace smla
