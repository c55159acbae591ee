// SPDX-License-Identifier: Apache-2.0
#include "reports/report_file.h"

#include <algorithm>

#include "reports/text.h"

namespace smla {

int schema_of(const std::vector<std::string>& found, const std::vector<std::string>& newest, std::span<const size_t> widths,
              const std::string& origin) {
  const size_t same = static_cast<size_t>(std::mismatch(found.begin(), found.end(), newest.begin(), newest.end()).first - found.begin());
  if (same == found.size()) {
    const auto width = std::find(widths.begin(), widths.end(), found.size());
    if (width != widths.end()) return static_cast<int>(width - widths.begin()) + 1;
    throw UsageError(fmt::format("{}:1: {} columns, the schema versions known have {}", origin, found.size(), fmt::join(widths, ", ")));
  }
  if (same == newest.size())
    throw UsageError(fmt::format("{}:1: written by a newer version of the tool (column {} is \"{}\"): read it with that version", origin, same + 1,
                                 clean_text(found[same])));
  const bool known = std::find(newest.begin(), newest.end(), found[same]) != newest.end();
  const char* hint = found[same].find(';') != std::string::npos ? " (separated by ';': saved by a spreadsheet?)"
                     : known                                    ? " (columns in another order, or one removed: use the file as it was written)"
                                                                : " (not a report of this kind)";
  throw UsageError(
      fmt::format("{}:1: column {} is \"{}\", expected \"{}\"{}", origin, same + 1, clean_text(found[same]).substr(0, 80), newest[same], hint));
}

}  // namespace smla
