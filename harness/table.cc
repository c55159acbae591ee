// SPDX-License-Identifier: Apache-2.0
#include "harness/table.h"

#include <fmt/format.h>
#include <unistd.h>

namespace smla {
namespace {

std::string figure(double value) { return value < 1e5 ? fmt::format("{:.2f}", value) : fmt::format("{:.3g}", value); }

std::string accuracy_columns(const std::string& kernel, const std::string& z, const std::string& row_rms, const std::string& pooled,
                             const std::string& lse, const std::string& ms, const std::string& line) {
  return fmt::format("{:<24} {:>7} {:>7} {:>7} {:>7} {:>9}  {}", kernel, z, row_rms, pooled, lse, ms, line);
}

}  // namespace

std::string status_text(Status status, int width) {
  const std::string text = fmt::format("{:<{}}", name_of(status), width);
  if (!isatty(STDOUT_FILENO)) return text;
  const int colour = status == Status::pass ? 32 : status == Status::unsupported || status == Status::skipped ? 33 : 31;
  return fmt::format("\033[{}m{}\033[0m", colour, text);
}

std::string coverage_text(const NeedleCoverage& coverage) { return fmt::format("  # asks {} of {} entries", coverage.asked, coverage.entries); }

std::string accuracy_header() {
  return fmt::format("{:<12}{}", "status", accuracy_columns("kernel", "z max", "row rms", "pooled", "lse", "ms", "case"));
}

std::string accuracy_line(const PlannedCase& planned, const PairResult& pair) {
  const RowFigures& f = pair.evidence.figures;
  const bool judged = f.rows > 0;
  return status_text(pair.status(), 12) + accuracy_columns(pair.kernel, judged ? figure(f.out.z_max) : "", judged ? figure(f.row_rms_share_max) : "",
                                                           f.pooled.rows > 0 ? figure(f.pooled_rms()) : "",
                                                           judged && pair.evidence.has_lse ? figure(f.lse_ratio_max) : "",
                                                           judged ? fmt::format("{:.3g}", pair.base.kernel_ms) : "",
                                                           to_line(planned.c()) + (pair.needle_coverage ? coverage_text(*pair.needle_coverage) : ""));
}

}  // namespace smla
