// SPDX-License-Identifier: Apache-2.0
// Rows to file and back: record.h on top of csv.h.
#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "reports/csv.h"
#include "reports/record.h"

namespace smla {

/// Rows of a file: row i stands on line i + 2. Or of several.
template <class Row>
struct Report {
  std::string origin;
  std::vector<Row> rows;
  bool torn = false;  // the last line was cut short by a killed run, and left out
  bool of_several = false;
  /// "FILE:LINE: " for errors about row i; of several files their names.
  std::string at(size_t i) const { return of_several ? origin + ": " : fmt::format("{}:{}: ", origin, i + 2); }
};

template <class Row>
std::vector<std::string> header() {
  std::vector<std::string> columns;
  for (const auto& field : fields<Row>()) columns.insert(columns.end(), field.columns.begin(), field.columns.end());
  return columns;
}

template <class Row>
std::vector<std::string> to_cells(const Row& row) {
  std::vector<std::string> cells;
  for (const auto& field : fields<Row>()) field.write(row, cells);
  return cells;
}

/// The schema version of a header: the first of `widths` whose columns it has (versions that differ in another file only look alike). Throws
/// UsageError naming the first column that differs, and what that looks like.
int schema_of(const std::vector<std::string>& found, const std::vector<std::string>& newest, std::span<const size_t> widths,
              const std::string& origin);

template <class Row>
Report<Row> to_report(const Csv& csv) {
  if (csv.header.empty()) throw UsageError(csv.origin + ": is empty: no header");
  const auto widths = schema_widths<Row>();
  const int version = schema_of(csv.header, header<Row>(), widths, csv.origin);
  Report<Row> report{csv.origin, {}, csv.torn};
  for (const std::vector<std::string>& cells : csv.rows) {
    Row row;
    try {
      size_t at = 0;
      for (const auto& field : fields<Row>()) {
        if (at >= cells.size()) break;  // an older schema: the columns after are missing
        field.read(row, std::span(cells).subspan(at, field.columns.size()));
        at += field.columns.size();
      }
      if (row.schema_version < 1 || row.schema_version > std::ssize(widths) ||
          widths[static_cast<size_t>(row.schema_version - 1)] != csv.header.size())
        throw UsageError(fmt::format("column schema_version: {} under the header of version {}", row.schema_version, version));
    } catch (const UsageError& error) { throw UsageError(report.at(report.rows.size()) + error.what()); }
    report.rows.push_back(std::move(row));
  }
  return report;
}

template <class Row>
Report<Row> parse_report(std::string text, const std::string& origin) {
  return to_report<Row>(parse_csv(std::move(text), origin));
}
template <class Row>
Report<Row> read_report(const std::string& path) {
  return to_report<Row>(read_csv(path));
}

template <class Row>
void append(Report<Row>& all, Report<Row> more) {
  all.of_several = !all.origin.empty();
  all.origin += (all.of_several ? " with " : "") + more.origin;
  all.torn |= more.torn;
  all.rows.insert(all.rows.end(), std::make_move_iterator(more.rows.begin()), std::make_move_iterator(more.rows.end()));
}
/// Of the folders of one report.
template <class Row>
Report<Row> read_reports(const std::vector<std::string>& folders) {
  Report<Row> all;
  for (const std::string& folder : folders) append(all, read_report<Row>(fmt::format("{}/{}", folder, file_name<Row>())));
  return all;
}

/// The rows of one run in OUT/<arch>; none where the file is not there.
template <class Row>
std::vector<Row> rows_of_run(const std::string& folder, const std::string& run_id) {
  const std::string path = fmt::format("{}/{}", folder, file_name<Row>());
  if (!std::filesystem::exists(path)) return {};
  std::vector<Row> rows = read_report<Row>(path).rows;
  std::erase_if(rows, [&](const Row& row) { return row.run_id != run_id; });
  return rows;
}

/// Appends rows, all of one unit (a pair of case and kernel) in one write. See CsvAppender for what is promised of a killed run.
template <class Row>
class ReportWriter {
 public:
  explicit ReportWriter(const std::string& folder) : file_(fmt::format("{}/{}", folder, file_name<Row>()), header<Row>(), unit_columns<Row>()) {}
  void append(std::span<const Row> rows) {
    std::vector<std::vector<std::string>> cells;
    for (const Row& row : rows) cells.push_back(to_cells(row));
    file_.append(cells);
  }
  void append(const Row& row) { append(std::span(&row, 1)); }
  void drop_last(size_t rows) { file_.drop_last(rows); }
  const std::string& path() const { return file_.path(); }

 private:
  CsvAppender file_;
};

}  // namespace smla
