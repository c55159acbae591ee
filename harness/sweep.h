// SPDX-License-Identifier: Apache-2.0
// The accuracy sweep: every planned case judged, told on stdout and written, each (case, kernel) whole or not at all.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/job.h"
#include "harness/judge_case.h"
#include "harness/timeline.h"

namespace smla {

/// How the pairs of a sweep ended.
struct Tally {
  int64_t planned = 0, red = 0;
  std::array<int64_t, std::size(Names<Status>::kAll)> by_status{};
  int64_t of(Status status) const { return by_status[static_cast<size_t>(status)]; }
  int64_t done() const;
  void add(Status status, bool is_red_pair);
  /// ", 1 fail, 84 unsupported, 2 not run": what did not pass.
  std::string others() const;
};

/// A pair that passed, with the bits that it answered: what is timed later must give the same.
struct PassedPair {
  PlannedCase planned;
  Candidate candidate;
  struct Bits {
    uint64_t out_hash = 0, lse_hash = 0;
    bool has_lse = true;
    Contract contract;
  };
  std::optional<Bits> bits;  // empty: it passed in the run that is resumed (judge_again)
  int64_t valid_keys = 0;    // of the case
};

struct SweepResult {
  Tally tally;
  int64_t resumed = 0;  // of them, pairs that the run which is resumed had judged
  TimeShares spent{};
  double wall_s = 0;
  int64_t workers_peak_bytes = 0;
  int signal = 0;  // that interrupted the sweep
  std::vector<PassedPair> passed;
  std::map<std::string, std::string> unexpected;  // pair_key (reports/outcome.h) -> what the suite expected instead
  /// Exit status of a sweep: 128 + signal, red, no pass, or green.
  int exit_status() const;
};

/// What a job asks of judge_case, with these checks.
JudgeOptions judge_options(const Job& job, const std::vector<size_t>& wanted_checks);

/// `write`: tell and write accuracy.csv; without it the pairs are only judged, and what is red is told.
SweepResult sweep_accuracy(const Job& job, bool write);

/// Judges a pair of the resumed run once more, without checks, for its bits: they stay empty where it does not pass now, and where Ctrl-C came.
Decision judge_again(const Job& job, PassedPair& pair);

/// The last lines: passed / planned first, what was not, where the reports are; with -v where the time went.
void print_tail(const SweepResult& result, const Job& job);

}  // namespace smla
