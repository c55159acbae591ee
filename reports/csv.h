// SPDX-License-Identifier: Apache-2.0
// Bytes of a CSV file to cells and back. What the cells mean is reports/record.h.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace smla {

/// A file as cells. Row i stands on line i + 2: no field holds a line feed, and no line is blank.
struct Csv {
  std::string origin;                          // names the file in errors
  std::vector<std::string> header;             // empty: the file has no whole line
  std::vector<std::vector<std::string>> rows;  // each as wide as the header; "" = missing
  bool torn = false;                           // the last line had no line feed (a killed run) and was left out
  size_t whole_bytes = 0;                      // up to and with the last line feed
};

/// A report is what this program writes, so all else is refused rather than guessed at: UsageError "FILE:LINE: ..." for a byte order mark, CR, NUL,
/// an open quote, text beside a quoted cell, and a line that is narrower or wider than the header.
Csv parse_csv(std::string text, const std::string& origin);
Csv read_csv(const std::string& path);

/// RFC 4180: quoted where it holds a comma or a quote; ends in LF. Cells hold no line feed (clean_text).
std::string csv_line(const std::vector<std::string>& cells);

/// Appends to a file that only one program may write at a time (flock).
/// Durability: one write(2) an append, no fsync before the destructor. A killed process loses nothing that was appended; a machine that loses power
/// may lose the last appends, and what is left of a half-written one is cut when the file is next opened.
class CsvAppender {
 public:
  /// Creates the file with `header`, or continues one whose header is the same. A torn last line is cut, and with it the rows before it that are
  /// equal in all `unit` columns: rows of one unit are appended together, so a unit is whole or absent. Throws UsageError: not writable, written by
  /// another process, another header.
  CsvAppender(std::string path, std::vector<std::string> header, const std::vector<std::string>& unit);
  ~CsvAppender();
  CsvAppender(const CsvAppender&) = delete;
  CsvAppender& operator=(const CsvAppender&) = delete;

  /// All rows in ONE write(2). Where that fails or falls short (disk full), the file is as it was before and UsageError says why.
  void append(const std::vector<std::vector<std::string>>& rows);
  /// Cuts the last `rows` rows.
  void drop_last(size_t rows);
  const std::string& path() const { return path_; }

 private:
  void write_whole(const std::string& bytes);
  void truncate(long long size_bytes);
  std::string path_;
  std::vector<std::string> header_;
  int fd_ = -1;
  long long size_bytes_ = 0;
};

}  // namespace smla
