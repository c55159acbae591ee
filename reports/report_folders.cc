// SPDX-License-Identifier: Apache-2.0
#include "reports/report_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

#include "cases/words.h"
#include "reports/report_file.h"

namespace smla {
namespace {

namespace fs = std::filesystem;

/// Folders in `dir` that hold the file, sorted.
std::vector<fs::path> holding(const fs::path& dir, std::string_view file) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error))
    if (fs::exists(entry.path() / file, error)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<std::string> report_folders(const std::string& dir, std::string_view file, const std::string& arch) {
  std::error_code error;
  if (fs::exists(fs::path(dir) / file, error)) return {dir};
  std::map<std::pair<std::string, bool>, std::vector<std::string>> reports;  // by arch, and whether it is of several cards
  for (const fs::path& folder : holding(dir, file)) reports[{folder.filename(), false}].push_back(folder);
  for (const auto& card : fs::directory_iterator(dir, error))
    if (card.path().filename().string().starts_with("gpu"))
      for (const fs::path& folder : holding(card, file)) reports[{folder.filename(), true}].push_back(folder);
  if (!arch.empty()) std::erase_if(reports, [&](const auto& report) { return report.first.first != arch; });
  if (reports.empty())
    throw UsageError(fmt::format("{}: no {} is there, nor in {}{}", dir, file, (fs::path(dir) / (arch.empty() ? "<arch>" : arch)).string(),
                                 file == file_name<AccuracyRow>() ? ": `smla check` and `smla run` write it, `smla bench` does not" : ""));
  std::vector<std::string>& folders = reports.begin()->second;
  if (reports.size() > 1)
    throw UsageError(fmt::format("{} holds several reports: {}, or {}?", dir, folders.front(), std::next(reports.begin())->second.front()));
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace smla
