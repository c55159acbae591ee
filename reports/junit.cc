// SPDX-License-Identifier: Apache-2.0
#include "reports/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/outcome.h"
#include "reports/report_file.h"
#include "reports/text.h"

namespace smla {
namespace {

using Ending = JunitCase::Ending;

Ending junit_ending(Status status) {
  switch (status) {
    case Status::pass:
      return Ending::passed;
    case Status::fail:
    case Status::mistrusted:
    case Status::impossible_fast:
      return Ending::failure;
    case Status::unsupported:
    case Status::skipped:
      return Ending::skipped;
    case Status::crash:
    case Status::timeout:
    case Status::oom:
    case Status::invalid:
      break;
  }
  return Ending::error;
}

/// Every column that this report has beyond the common ones, but what stands in name and text.
template <class Row>
std::vector<std::pair<std::string, std::string>> properties(const Row& row) {
  static const std::vector<std::string> columns = header<Row>();
  static const size_t begin = static_cast<size_t>(std::find(columns.begin(), columns.end(), "plugin_sha") - columns.begin()) + 1;
  const std::vector<std::string> cells = to_cells(row);
  std::vector<std::pair<std::string, std::string>> found;
  for (size_t i = begin; i < columns.size(); ++i)
    if (!cells[i].empty() && columns[i] != "detail" && columns[i] != "repro") found.emplace_back(columns[i], cells[i]);
  return found;
}

template <class Row>
JunitCase to_case(const Row& row, const char* job, const std::string& name) {
  JunitCase c{.suite = fmt::format("{} {}", job, row.kernel), .classname = fmt::format("smla.{}.{}", job, row.kernel), .name = name};
  c.ending = junit_ending(row.status);
  c.properties = properties(row);
  if (c.ending == Ending::passed) return c;
  c.type = name_of(row.status);
  c.message = row.detail.empty() ? c.type : row.detail;
  c.text = fmt::format("{}\n{}\ncase: {}\n{}", c.type, row.detail, to_line(row.c), row.repro);
  return c;
}

std::string element(const JunitCase& c) {
  std::string xml = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"", xml_escape(c.classname), xml_escape(c.name), c.time_s);
  if (c.properties.empty() && c.ending == Ending::passed) return xml + "/>\n";
  xml += ">\n";
  if (!c.properties.empty()) {
    xml += "      <properties>\n";
    for (const auto& [name, value] : c.properties)
      xml += fmt::format("        <property name=\"{}\" value=\"{}\"/>\n", xml_escape(name), xml_escape(value));
    xml += "      </properties>\n";
  }
  if (c.ending == Ending::skipped) xml += fmt::format("      <skipped message=\"{}\"/>\n", xml_escape(c.message));
  else if (c.ending != Ending::passed) {
    const char* tag = c.ending == Ending::failure ? "failure" : "error";
    xml += fmt::format("      <{} type=\"{}\" message=\"{}\">{}</{}>\n", tag, xml_escape(c.type), xml_escape(c.message), xml_escape(c.text), tag);
  }
  return xml + "    </testcase>\n";
}

struct Counts {
  size_t tests = 0, failures = 0, errors = 0, skipped = 0;
  double time_s = 0;
  void add(const JunitCase& c) {
    ++tests;
    failures += c.ending == Ending::failure;
    errors += c.ending == Ending::error;
    skipped += c.ending == Ending::skipped;
    time_s += c.time_s;
  }
  std::string attributes() const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.6f}\"", tests, failures, errors, skipped, time_s);
  }
};

}  // namespace

std::string junit_xml(std::span<const JunitCase> cases) {
  std::vector<std::string> suites;
  Counts all;
  for (const JunitCase& c : cases) {
    all.add(c);
    if (std::find(suites.begin(), suites.end(), c.suite) == suites.end()) suites.push_back(c.suite);
  }
  std::string xml = fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"smla\" {}>\n", all.attributes());
  for (const std::string& suite : suites) {
    Counts counts;
    std::string body;
    for (const JunitCase& c : cases) {
      if (c.suite != suite) continue;
      counts.add(c);
      body += element(c);
    }
    xml += fmt::format("  <testsuite name=\"{}\" {}>\n{}  </testsuite>\n", xml_escape(suite), counts.attributes(), body);
  }
  return xml + "</testsuites>\n";
}

std::vector<JunitCase> junit_cases(std::span<const AccuracyRow> rows, const std::map<std::string, std::string>& unexpected) {
  std::vector<JunitCase> cases;
  for (const Outcome& outcome : outcomes(rows)) {
    const auto found = unexpected.find(pair_key(outcome.worst()));
    for (const AccuracyRow* row : {outcome.out, outcome.lse}) {
      if (row == nullptr) continue;
      JunitCase c = to_case(*row, "check", fmt::format("{} [{}]", to_line(row->c), name_of(row->tensor)));
      if (found != unexpected.end()) {
        c.ending = JunitCase::Ending::failure;
        c.type = "unexpected";
        c.message = c.text = fmt::format("{}, got {}\n{}", found->second, name_of(row->status), row->repro);
      }
      if (row == outcome.out) c.time_s = row->kernel_ms.value_or(0) / 1e3;
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

std::vector<JunitCase> junit_cases(std::span<const ThroughputRow> rows) {
  std::vector<JunitCase> cases;
  for (const ThroughputRow* row : latest(rows)) {
    JunitCase c = to_case(*row, "bench", fmt::format("{} [{} {}]", to_line(row->c), row->timing, row->cache));
    c.time_s = row->time_us_median.value_or(0) / 1e6;
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace smla
