// SPDX-License-Identifier: Apache-2.0
#include "harness/earlier.h"

#include <fmt/format.h>

#include <set>

#include "reports/report_file.h"

namespace smla {
namespace {

bool may_be_mended_by_retry(Status status) { return status == Status::crash || status == Status::timeout || status == Status::oom; }

std::string timed_key(const std::string& id, const std::string& kernel, const std::string& timing, const std::string& cache) {
  return fmt::format("{} {} {} {}", id, kernel, timing, cache);
}

/// A pair's samples are appended before its row: those at the end of the file that have none are of the pair that was interrupted.
void cut_orphans(const std::string& folder, const std::string& run_id, const std::vector<ThroughputRow>& throughput) {
  const std::vector<SampleRow> samples = rows_of_run<SampleRow>(folder, run_id);
  std::set<std::string> told;
  for (const ThroughputRow& row : throughput) told.insert(timed_key(case_id(row.c), row.kernel, row.timing, row.cache));
  size_t orphans = 0;
  while (orphans < samples.size()) {
    const SampleRow& last = samples[samples.size() - 1 - orphans];
    if (told.contains(timed_key(last.case_id, last.kernel, last.timing, last.cache))) break;
    ++orphans;
  }
  if (orphans > 0) ReportWriter<SampleRow>(folder).drop_last(orphans);
}

}  // namespace

Earlier::Earlier(const std::string& folder, const std::string& run_id, bool retry)
    : accuracy_(rows_of_run<AccuracyRow>(folder, run_id)), throughput_(rows_of_run<ThroughputRow>(folder, run_id)) {
  cut_orphans(folder, run_id, throughput_);
  for (const Outcome& outcome : outcomes(accuracy_)) {
    if (const std::string why = outcome.contradiction(); !why.empty())
      throw UsageError(
          fmt::format("{}/accuracy.csv: {}, {}: {}: it was changed after the run", folder, outcome.worst().kernel, to_line(outcome.worst().c), why));
    if (!retry || !may_be_mended_by_retry(outcome.status())) judged_[pair_key(outcome.worst())] = outcome;
  }
  for (const ThroughputRow* row : latest(throughput_))
    if (!retry || !may_be_mended_by_retry(row->status)) timed_[timed_key(case_id(row->c), row->kernel, row->timing, row->cache)] = row;
}

const Outcome* Earlier::judged(const Case& c, const std::string& kernel) const {
  const auto found = judged_.find(pair_key_of(c, kernel));
  return found == judged_.end() ? nullptr : &found->second;
}

const ThroughputRow* Earlier::timed(const Case& c, const std::string& kernel, const std::string& timing, const std::string& cache) const {
  const auto found = timed_.find(timed_key(case_id(c), kernel, timing, cache));
  return found == timed_.end() ? nullptr : found->second;
}

}  // namespace smla
