// SPDX-License-Identifier: Apache-2.0
#include "harness/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include "harness/figure.h"

namespace smla {
namespace {

std::string figure(double value, double limit) { return value < 1e5 ? fixed_beside(value, limit) : figure_beside(value, limit); }

std::string accuracy_columns(const std::string& kernel, const std::string& z, const std::string& row_rms, const std::string& pooled,
                             const std::string& lse, const std::string& ms, const std::string& line) {
  return fmt::format("{:<24} {:>7} {:>7} {:>7} {:>7} {:>9}  {}", kernel, z, row_rms, pooled, lse, ms, line);
}

std::string throughput_columns(const std::string& status, std::initializer_list<std::string> figures, const std::string& kernel,
                               const std::string& line) {
  std::string text = fmt::format("{}{:<22}", status, kernel);
  for (const std::string& figure : figures) text += fmt::format(" {:>9}", figure);
  return text + "  " + line;
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
  const Limits limits;
  return status_text(pair.status(), 12) + accuracy_columns(pair.kernel, judged ? figure(f.out.z_max, limits.z_max) : "",
                                                           judged ? figure(f.row_rms_share_max, 1) : "",
                                                           f.pooled.rows > 0 ? figure(f.pooled_rms(), limits.pooled_rms) : "",
                                                           judged && pair.evidence.has_lse ? figure(f.lse_ratio_max, limits.lse_ratio) : "",
                                                           judged ? fmt::format("{:.3g}", pair.base.kernel_ms) : "",
                                                           to_line(planned.c()) + (pair.needle_coverage ? coverage_text(*pair.needle_coverage) : ""));
}

std::string throughput_header() {
  return throughput_columns(fmt::format("{:<16}", "status"), {"timing", "median us", "iqr %", "TFLOP/s", "GB/s", "roof %", "x floor", "x dense"},
                            "kernel", "case");
}

std::string throughput_line(const ThroughputRow& row) {
  const auto number = [](const Measure& value, const char* format, double factor = 1) {
    return value ? fmt::format(fmt::runtime(format), *value * factor) : std::string();
  };
  const double over_floor = row.gather_floor_us && row.time_us_median ? *row.time_us_median / *row.gather_floor_us : 0;
  return throughput_columns(
      status_text(row.status, 16),
      {row.timing + " " + row.cache, number(row.time_us_median, row.time_us_median.value_or(0) < 100 ? "{:.2f}" : "{:.1f}"),
       number(row.time_rel_iqr, "{:.1f}", 100), number(row.tflops, "{:.3g}"), number(row.gbps_gathered, "{:.3g}"),
       number(row.roof_frac, "{:.0f}", 100), over_floor > 0 ? fmt::format("{:.2f}", over_floor) : "", number(row.speedup_vs_dense, "{:.2f}")},
      row.kernel, to_line(row.c));
}

}  // namespace smla
