// SPDX-License-Identifier: Apache-2.0
// Any text is a report or a mistake told in one line; what was read is written to the same cells again.
#include "reports/report_file.h"
#include "smla_fuzz.h"

namespace {

template <class Row>
void read(const std::string& text) {
  smla::Report<Row> report;
  try {
    report = smla::parse_report<Row>(text, "fuzz.csv");
  } catch (const smla::UsageError& error) {
    fuzz_require_one_line(error.what());
    fuzz_require(std::string(error.what()).starts_with("fuzz.csv:"), "the mistake has no place", error.what());
    return;
  }
  std::string again = smla::csv_line(smla::header<Row>());
  for (const Row& row : report.rows) again += smla::csv_line(smla::to_cells(row));
  const auto twice = smla::parse_report<Row>(again, "again.csv");
  fuzz_require(twice.rows.size() == report.rows.size(), "rows were lost");
  for (size_t i = 0; i < report.rows.size(); ++i)
    fuzz_require(smla::to_cells(twice.rows[i]) == smla::to_cells(report.rows[i]), "a row changed", again);
}

}  // namespace

/// The first byte chooses the report and whether the right header is put in front.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto with = [&](const std::vector<std::string>& header) { return (data[0] & 4) != 0 ? smla::csv_line(header) + text : text; };
  switch (data[0] & 3) {
    case 0:
      read<smla::AccuracyRow>(with(smla::header<smla::AccuracyRow>()));
      break;
    case 1:
      read<smla::ThroughputRow>(with(smla::header<smla::ThroughputRow>()));
      break;
    case 2:
      read<smla::SampleRow>(with(smla::header<smla::SampleRow>()));
      break;
    default: {
      std::vector<smla::Csv> csv;
      try {
        csv.push_back(smla::parse_csv(text, "fuzz.csv"));
      } catch (const smla::UsageError& error) {
        fuzz_require_one_line(error.what());
        return 0;
      }
      std::string again = csv[0].header.empty() ? "" : smla::csv_line(csv[0].header);
      for (const auto& row : csv[0].rows) again += smla::csv_line(row);
      csv.push_back(smla::parse_csv(again, "again.csv"));
      fuzz_require(csv[0].header == csv[1].header && csv[0].rows == csv[1].rows, "cells changed", again);
    }
  }
  return 0;
}
