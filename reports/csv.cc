// SPDX-License-Identifier: Apache-2.0
#include "reports/csv.h"

#include <csv.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cases/words.h"
#include "reports/text.h"

namespace smla {
namespace {

// Fast C++ CSV Parser. Its CSVReader<N> is not used: N must be a template argument and a file of an older schema is narrower; and its number parsing
// reads an empty cell as 0, refuses "nan" and misrounds 1e-07. Its lines and its RFC 4180 quote policy are. LineReader steps over the end of text
// whose last line has no line feed, drops CR in silence and ends a line at NUL: hence refuse_damage() and the cut of the torn tail before it sees the
// text.
using Quote = io::double_quote_escape<',', '"'>;

std::string doubled(std::string_view cell) {
  std::string quoted = "\"";
  for (char c : cell) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

void refuse_damage(const std::string& text, const std::string& origin) {
  const auto line_of = [&](size_t at) { return 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'); };
  if (text.starts_with("\xEF\xBB\xBF"))
    throw UsageError(fmt::format(
        "{}:1: starts with a byte order mark: saved by a spreadsheet, which may have rounded values; use the file as it was written", origin));
  if (const size_t at = text.find('\r'); at != text.npos)
    throw UsageError(
        fmt::format("{}:{}: carriage return (CRLF line ends): saved by a spreadsheet, which may have rounded values; use the file as it was written",
                    origin, line_of(at)));
  if (const size_t at = text.find('\0'); at != text.npos) throw UsageError(fmt::format("{}:{}: NUL byte: not a text file", origin, line_of(at)));
}

std::vector<std::string> split_line(char* line, const std::string& origin, unsigned number) {
  std::vector<std::string> cells;
  try {
    for (bool last = false; !last;) {
      char* end = line + (Quote::find_next_column_end(line) - line);
      last = *end == '\0';
      *end = '\0';
      const std::string raw(line, end);
      char* cell = line;
      char* cell_end = end;
      Quote::unescape(cell, cell_end);
      cells.emplace_back(cell, cell_end);
      if (raw.find('"') != raw.npos && raw != doubled(cells.back()))
        throw UsageError(fmt::format("{}:{}: cell {}: text beside a quoted cell: {}", origin, number, cells.size(), raw));
      line = end + 1;
    }
  } catch (const io::error::escaped_string_not_closed&) {
    throw UsageError(fmt::format("{}:{}: cell {}: a quote is not closed", origin, number, cells.size() + 1));
  }
  return cells;
}

UsageError cannot_append(const std::string& path, const std::string& why) { return UsageError(fmt::format("cannot append to {}: {}", path, why)); }

/// Index of the first row of the last unit.
size_t unit_begin(const Csv& csv, const std::vector<std::string>& unit) {
  size_t begin = csv.rows.size();
  const auto in_unit = [&](const std::vector<std::string>& row) {
    return std::all_of(unit.begin(), unit.end(), [&](const std::string& column) {
      const auto at = static_cast<size_t>(std::find(csv.header.begin(), csv.header.end(), column) - csv.header.begin());
      return row.at(at) == csv.rows.back().at(at);
    });
  };
  while (begin > 0 && in_unit(csv.rows[begin - 1])) --begin;
  return begin;
}

}  // namespace

Csv parse_csv(std::string text, const std::string& origin) {
  Csv csv{.origin = origin};
  const size_t whole = text.rfind('\n') + 1;  // npos + 1 == 0
  csv.torn = whole < text.size();
  csv.whole_bytes = whole;
  text.resize(whole);
  refuse_damage(text, origin);
  try {
    io::LineReader lines(origin, text.data(), text.data() + text.size());
    while (char* line = lines.next_line()) {
      std::vector<std::string> cells = split_line(line, origin, lines.get_file_line());
      if (csv.header.empty()) csv.header = std::move(cells);
      else if (cells.size() == csv.header.size()) csv.rows.push_back(std::move(cells));
      else throw UsageError(fmt::format("{}:{}: {} cells, the header has {}", origin, lines.get_file_line(), cells.size(), csv.header.size()));
    }
  } catch (const io::error::base& error) { throw UsageError(fmt::format("{}: {}", origin, error.what())); }
  return csv;
}

Csv read_csv(const std::string& path) { return parse_csv(read_text_file(path), path); }

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (!line.empty() || &cell != &cells.front()) line += ',';
    // A byte order mark that begins a file would not be read as text.
    line += cell.find_first_of(",\"\n\r") == cell.npos && !cell.starts_with("\xef\xbb\xbf") ? cell : doubled(cell);
  }
  return line + '\n';
}

CsvAppender::CsvAppender(std::string path, std::vector<std::string> header, const std::vector<std::string>& unit)
    : path_(std::move(path)), header_(std::move(header)) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw cannot_append(path_, std::strerror(errno));
  try {
    struct stat is {};
    if (::fstat(fd_, &is) == 0 && !S_ISREG(is.st_mode)) throw cannot_append(path_, "it is no regular file");
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) throw cannot_append(path_, errno == EWOULDBLOCK ? "another run is writing it" : std::strerror(errno));
    const Csv csv = read_csv(path_);
    if (csv.header.empty()) {  // new, or killed before the header was whole
      truncate(0);
      write_whole(csv_line(header_));
      return;
    }
    if (csv.header != header_) throw cannot_append(path_, "its columns are not those that this version writes; choose another folder");
    truncate(static_cast<long long>(csv.whole_bytes));
    if (csv.torn) drop_last(csv.rows.size() - unit_begin(csv, unit));
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

CsvAppender::~CsvAppender() {
  ::fdatasync(fd_);
  ::close(fd_);
}

void CsvAppender::append(const std::vector<std::vector<std::string>>& rows) {
  std::string bytes;
  for (const auto& row : rows) {
    if (row.size() != header_.size())
      throw std::logic_error(fmt::format("{}: a row of {} cells under a header of {}", path_, row.size(), header_.size()));
    bytes += csv_line(row);
  }
  write_whole(bytes);
}

void CsvAppender::write_whole(const std::string& bytes) {
  struct stat is {};
  if (::fstat(fd_, &is) == 0 && is.st_nlink == 0) throw cannot_append(path_, "it was removed while the run was writing it");
  for (size_t done = 0; done < bytes.size();) {  // more than once where there is no room: the second says why
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : ENOSPC;
      truncate(size_bytes_);
      throw cannot_append(path_, fmt::format("{}; the rows before are whole", std::strerror(error)));
    }
    done += static_cast<size_t>(n);
  }
  size_bytes_ += static_cast<long long>(bytes.size());
}

void CsvAppender::drop_last(size_t rows) {
  if (rows == 0) return;
  const std::string text = read_text_file(path_);
  size_t end = text.rfind('\n');
  for (; rows > 0 && end != text.npos && end > 0; --rows) end = text.rfind('\n', end - 1);
  if (rows > 0 || end == text.npos) throw std::logic_error(path_ + ": fewer rows than are to be dropped");
  truncate(static_cast<long long>(end) + 1);
}

void CsvAppender::truncate(long long size_bytes) {
  if (::ftruncate(fd_, size_bytes) != 0) throw cannot_append(path_, std::strerror(errno));
  size_bytes_ = size_bytes;
}

}  // namespace smla
