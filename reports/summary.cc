// SPDX-License-Identifier: Apache-2.0
#include "reports/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "reports/outcome.h"
#include "reports/table.h"
#include "reports/text.h"

namespace smla {
namespace {

std::string number(const Measure& value, const char* format = "{:.3g}") { return value ? fmt::format(fmt::runtime(format), *value) : ""; }

/// A fence that nothing in `text` can close.
std::string fenced(const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != text.npos) fence += '`';
  return fence + "\n" + text + "\n" + fence + "\n";
}

struct ByKernel {
  std::array<int64_t, std::size(Names<Status>::kAll)> count{};
};

std::string kernels_by_status(const std::vector<Outcome>& pairs) {
  std::map<std::string, ByKernel> kernels;
  ByKernel all;
  for (const Outcome& pair : pairs) {
    ++kernels[pair.worst().kernel].count[static_cast<size_t>(pair.status())];
    ++all.count[static_cast<size_t>(pair.status())];
  }
  std::vector<size_t> seen;  // only the statuses that occur
  std::vector<std::string> titles{"kernel"};
  for (size_t s = 0; s < all.count.size(); ++s)
    if (all.count[s] > 0) {
      seen.push_back(s);
      titles.emplace_back(Names<Status>::kAll[s]);
    }
  Table table{titles, {}};
  for (const auto& [kernel, by] : kernels) {
    std::vector<std::string> cells{kernel};
    for (size_t s : seen) cells.push_back(by.count[s] > 0 ? fmt::format("{}", by.count[s]) : "");
    table.add(cells);
  }
  return table.markdown();
}

/// The largest of one statistic, and whose it is.
struct Worst {
  double value = -1;
  std::string kernel;
  void see(const Measure& v, const std::string& k) {
    if (v && *v > value) value = *v, kernel = k;
  }
  std::string text() const { return value < 0 ? "" : fmt::format("{:.3g} ({})", value, kernel); }
};

std::string worst_margins(const std::vector<Outcome>& pairs) {
  struct Margins {
    int64_t pairs = 0;
    Worst z, rms, pooled, lse;
  };
  std::map<std::pair<std::string, std::string>, Margins> groups;  // pattern, kv_format
  for (const Outcome& pair : pairs) {
    const AccuracyRow& row = pair.worst();
    if (!row.n_elem) continue;  // nothing was judged
    Margins& m = groups[{std::string(name_of(row.c.pattern)), std::string(name_of(row.c.kv_format))}];
    ++m.pairs;
    if (pair.out) {
      m.z.see(pair.out->z_max, row.kernel);
      m.rms.see(pair.out->z_row_rms_max, row.kernel);
      m.pooled.see(pair.out->z_rms_pooled, row.kernel);
    }
    if (pair.lse) m.lse.see(pair.lse->lse_err_max, row.kernel);
  }
  Table table{{"pattern", "kv_format", "pairs", "z_max", "z_row_rms_max", "z_rms_pooled", "lse_err_max"}, {}};
  for (const auto& [group, m] : groups)
    table.add({group.first, group.second, fmt::format("{}", m.pairs), m.z.text(), m.rms.text(), m.pooled.text(), m.lse.text()});
  return table.markdown();
}

std::string left_out(const std::vector<Outcome>& pairs) {
  std::map<std::array<std::string, 3>, int64_t> reasons;
  for (const Outcome& pair : pairs) {
    const AccuracyRow& row = pair.worst();
    if (row.status == Status::unsupported || row.status == Status::skipped) ++reasons[{row.kernel, std::string(name_of(row.status)), row.detail}];
  }
  if (reasons.empty()) return "";
  Table table{{"kernel", "status", "pairs", "reason"}, {}};
  for (const auto& [key, count] : reasons) table.add({key[0], key[1], fmt::format("{}", count), key[2]});
  return "\n## Left out\n\n" + table.markdown();
}

std::string failure(const Common& row, std::string_view status, const std::string& detail, const std::string& repro) {
  return fmt::format("\n**{}** {}: {}\n\n{}", status, markdown_cell(row.kernel), markdown_cell(detail.empty() ? to_line(row.c) : detail),
                     fenced(repro.empty() ? to_line(row.c) : repro));
}

std::string throughput_table(const std::vector<const ThroughputRow*>& rows) {
  Table table{{"case", "kernel", "timing", "cache", "median µs", "IQR %", "TFLOP/s", "unique GB/s", "of roof %", "roof µs", "dense µs", "speed-up",
               "dense kernel", "dense roof µs"},
              {}};
  for (const ThroughputRow* row : rows) {
    const auto percent = [](const Measure& v) { return v ? fmt::format("{:.1f}", 100 * *v) : std::string(); };
    if (row->status != Status::pass) {
      table.add({to_line(row->c), row->kernel, row->timing, row->cache, std::string(name_of(row->status)), "", "", "", "", "", "", "", "", ""});
      continue;
    }
    table.add({to_line(row->c), row->kernel, row->timing, row->cache, number(row->time_us_median, "{:.5g}"), percent(row->time_rel_iqr),
               number(row->tflops), number(row->gbps_unique), percent(row->roof_frac), number(row->roof_us, "{:.4g}"),
               number(row->dense_time_us_median, "{:.5g}"), number(row->speedup_vs_dense), row->dense_kernel, number(row->dense_roof_us, "{:.4g}")});
  }
  return table.markdown();
}

}  // namespace

std::string summary_markdown(const SummaryInput& input) {
  const std::vector<Outcome> pairs = outcomes(input.accuracy);
  const std::vector<const ThroughputRow*> timed = latest(input.throughput);
  int64_t passed = 0, of_nothing = 0, red = 0, declined = 0;
  std::string failures;
  for (const Outcome& pair : pairs) {
    const AccuracyRow& row = pair.worst();
    const auto unexpected = input.unexpected.find(pair_key(row));
    const bool is_unexpected = unexpected != input.unexpected.end();
    passed += row.status == Status::pass && !is_unexpected;
    of_nothing += row.status == Status::pass && !is_unexpected && row.valid_keys_mean == 0.0;
    if (is_unexpected) failures += failure(row, name_of(row.status), fmt::format("{}. {}", unexpected->second, row.detail), row.repro);
    else if (is_red(row.status)) failures += failure(row, name_of(row.status), row.detail, row.repro);
    else {
      declined += row.status != Status::pass;
      continue;
    }
    ++red;
  }
  const int64_t seen = static_cast<int64_t>(pairs.size()), planned = std::max(input.planned, seen);
  int64_t timed_passed = 0, timed_red = 0;
  for (const ThroughputRow* row : timed) {
    timed_passed += row->status == Status::pass;
    if (!is_red(row->status)) continue;
    ++timed_red;
    failures += failure(*row, name_of(row->status), fmt::format("{} {}: {}", row->timing, row->cache, row->detail), row->repro);
  }

  std::string text =
      fmt::format("# {} / {} passed: {} red, {} unsupported or skipped, {} not run\n\n", passed, planned, red, declined, planned - seen);
  if (input.only_timed)
    text = fmt::format("# {0} / {1} timed: {2} red, {3} not timed\n\n", timed_passed, std::max(input.planned, std::ssize(timed)), timed_red,
                       std::max(input.planned, std::ssize(timed)) - timed_passed - timed_red);
  if (of_nothing > 0)
    text += fmt::format(
        "{} of the passed have no valid key in any row: zeros are their right answer, so they show that empty rows are handled and nothing else.\n\n",
        of_nothing);
  if (!timed.empty() && !input.only_timed) text += fmt::format("Throughput: {} of {} rows measured.\n\n", timed_passed, timed.size());
  const Common* first = !pairs.empty() ? static_cast<const Common*>(&pairs[0].worst()) : !timed.empty() ? timed[0] : nullptr;
  if (first != nullptr) {
    Table table{{"", ""}, {}};
    table.add({"device", fmt::format("{} ({})", first->device_name, first->arch)});
    table.add({"host", first->host});
    table.add({"run", fmt::format("{}, started {}", first->run_id, first->started_utc)});
    table.add({"tool", fmt::format("{} {}{}", first->tool_version, first->git_commit, first->git_dirty.value_or(false) ? " (changed)" : "")});
    if (!first->driver_version.empty()) table.add({"driver, CUDA", first->driver_version + ", " + first->cuda_version});
    if (!input.command.empty()) table.add({"command", input.command});
    if (input.wall_s > 0) table.add({"wall time", fmt::format("{:.1f} s", input.wall_s)});
    text += table.markdown();
  }
  if (!pairs.empty()) text += "\n## Kernels\n\n" + kernels_by_status(pairs);
  if (!failures.empty()) text += "\n## Red\n" + failures;
  text += left_out(pairs);
  if (!pairs.empty())
    text += "\n## Worst margins\n\nLargest value by pattern and format, and whose it is. Limits: reference/README.md.\n\n" + worst_margins(pairs);
  if (!timed.empty())
    text +=
        "\n## Throughput\n\nSpeed-up is over the dense kernel named, on the full context of the same requests; its own roof stands beside it, so "
        "that a weak dense kernel "
        "shows.\n\n" +
        throughput_table(timed);
  return text;
}

}  // namespace smla
