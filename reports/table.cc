// SPDX-License-Identifier: Apache-2.0
#include "reports/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "reports/csv.h"
#include "reports/text.h"

namespace smla {
namespace {

/// Characters that a terminal shows: bytes of UTF-8 that start one.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool starts_as_number(const std::string& cell) { return !cell.empty() && (cell[0] == '-' || cell[0] == '+' || (cell[0] >= '0' && cell[0] <= '9')); }

}  // namespace

void Table::add(std::vector<std::string> cells) {
  if (cells.size() != titles.size()) throw std::logic_error(fmt::format("a row of {} cells in a table of {} columns", cells.size(), titles.size()));
  for (std::string& cell : cells) cell = clean_text(cell);
  rows.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < titles.size(); ++i) {
    widths.push_back(width(titles[i]));
    for (const auto& row : rows) widths[i] = std::max(widths[i], width(row[i]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string joined;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - width(cells[i]), ' ');
      joined += (i == 0 ? "" : "  ") + (starts_as_number(cells[i]) ? padding + cells[i] : cells[i] + padding);
    }
    return joined.substr(0, joined.find_last_not_of(' ') + 1) + '\n';
  };
  std::string all = line(titles);
  for (const auto& row : rows) all += line(row);
  return all;
}

std::string Table::markdown() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string joined;
    for (const std::string& cell : cells) joined += "| " + markdown_cell(cell) + " ";
    return joined + "|\n";
  };
  std::string all = line(titles);
  for (size_t i = 0; i < titles.size(); ++i) all += "|---";
  all += "|\n";
  for (const auto& row : rows) all += line(row);
  return all;
}

std::string Table::csv() const {
  std::string all = csv_line(titles);
  for (const auto& row : rows) all += csv_line(row);
  return all;
}

}  // namespace smla
