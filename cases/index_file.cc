// SPDX-License-Identifier: Apache-2.0
#include "cases/index_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "cases/input_file.h"
#include "cases/words.h"

namespace smla {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};

/// The text behind 'KEY': in numpy's header, a Python dict of three keys.
std::string_view value_of(std::string_view header, std::string_view key) {
  size_t at = header.find(fmt::format("'{}'", key));
  if (at == std::string_view::npos) return {};
  at = header.find(':', at);
  if (at == std::string_view::npos) return {};
  at = header.find_first_not_of(' ', at + 1);
  return at == std::string_view::npos ? std::string_view() : header.substr(at);
}

std::string printable(std::string_view text) {
  std::string out(text.substr(0, 40));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

/// "(3, 4)" or "(5,)". False if it is none.
bool parse_shape(std::string_view text, std::vector<int64_t>& shape) {
  if (!text.starts_with('(')) return false;
  const size_t end = text.find(')');
  if (end == std::string_view::npos) return false;
  text = text.substr(1, end - 1);
  while (!text.empty()) {
    const size_t digit = text.find_first_not_of(" ,");
    if (digit == std::string_view::npos) break;
    text.remove_prefix(digit);
    int64_t n = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || n < 0) return false;
    shape.push_back(n);
    text.remove_prefix(static_cast<size_t>(rest - text.data()));
  }
  return true;
}

}  // namespace

IndexFile parse_index_file(std::string_view bytes, const std::string& origin) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw UsageError(origin + ": " + what);
  };
  require(bytes.size() >= 10 && bytes.starts_with(kMagic), "is no .npy file (numpy.save writes one)");
  const bool wide = static_cast<uint8_t>(bytes[6]) >= 2;  // format version 1 has a 16-bit header length
  const size_t before = wide ? 12 : 10;
  require(bytes.size() >= before, "its header is cut short");
  size_t length = 0;
  for (size_t i = 8; i < before; ++i) length |= size_t{static_cast<uint8_t>(bytes[i])} << (8 * (i - 8));
  require(length <= bytes.size() - before, "its header is cut short");
  const std::string_view header = bytes.substr(before, length), data = bytes.substr(before + length);

  const std::string_view descr = value_of(header, "descr");
  const bool is_64 = descr.starts_with("'<i8'");
  require(is_64 || descr.starts_with("'<i4'"),
          fmt::format("has dtype {}; int32 or int64 ('<i4', '<i8') is wanted", printable(descr.substr(0, descr.find(',')))));
  require(value_of(header, "fortran_order").starts_with("False"), "is in Fortran order; numpy.ascontiguousarray changes that");
  std::vector<int64_t> shape;
  require(parse_shape(value_of(header, "shape"), shape) && !shape.empty(), "has no readable shape of at least one dimension");

  const size_t element = is_64 ? 8 : 4;
  uint64_t count = 1;
  for (int64_t n : shape) {
    require(n > 0, "is empty: a dimension is 0");
    require(!__builtin_mul_overflow(count, static_cast<uint64_t>(n), &count) && count <= data.size() / element,
            fmt::format("holds {} bytes, fewer than its shape needs", data.size()));
  }
  require(count * element == data.size(), fmt::format("holds {} bytes, its shape needs {}", data.size(), count * element));
  IndexFile file;
  file.columns = shape.back();
  file.rows = static_cast<int64_t>(count) / file.columns;
  require(file.columns <= std::numeric_limits<int32_t>::max(), "has too many columns");
  file.positions.resize(count);
  for (size_t i = 0; i < count; ++i) {
    int64_t position = 0;
    if (is_64) std::memcpy(&position, data.data() + i * element, element);
    else {
      int32_t narrow;
      std::memcpy(&narrow, data.data() + i * element, element);
      position = narrow;
    }
    require(position <= std::numeric_limits<int32_t>::max(), fmt::format("element {} is {}: no position", i, position));
    file.positions[i] = static_cast<int32_t>(std::max<int64_t>(position, -1));
  }
  return file;
}

IndexFile read_index_file(const std::string& path) { return parse_index_file(read_input_file(path), path); }

IndexStatistics statistics_of(const IndexFile& file, int32_t page_size) {
  IndexStatistics s;
  s.rows = file.rows;
  s.columns = file.columns;
  s.valid_min = file.columns;
  int64_t runs = 0, pages = 0, reused = 0, followed = 0;
  std::unordered_set<int32_t> before, now, touched;
  bool any = false;
  for (int64_t row = 0; row < file.rows; ++row) {
    int64_t valid = 0, run = 0, first_invalid = -1;
    int32_t last = -1;
    bool ascending = true, hole = false, interleaved = false;
    now.clear();
    touched.clear();
    for (int64_t i = 0; i < file.columns; ++i) {
      const int32_t position = file.at(row, i);
      if (position < 0) {
        if (first_invalid < 0) first_invalid = i;
        hole |= valid > 0;
        last = -1;
        run = 0;
        continue;
      }
      interleaved |= hole;
      ascending &= valid == 0 || position > file.at(row, i - 1);
      run = last >= 0 && position - 1 == last ? run + 1 : 1;
      runs += run == 1;
      s.run_max = std::max(s.run_max, run);
      last = position;
      ++valid;
      now.insert(position);
      touched.insert(position / page_size);
      s.least = any ? std::min(s.least, position) : position;
      s.largest = any ? std::max(s.largest, position) : position;
      any = true;
    }
    s.valid += valid;
    s.valid_min = std::min(s.valid_min, valid);
    s.valid_max = std::max(s.valid_max, valid);
    s.empty_rows += valid == 0;
    s.duplicate_rows += static_cast<int64_t>(now.size()) < valid;
    s.ascending_rows += valid > 0 && ascending;
    pages += static_cast<int64_t>(touched.size());
    s.leading_rows += valid > 0 && first_invalid == 0;
    s.interleaved_rows += interleaved;
    s.tail_only_rows += first_invalid >= valid;
    if (row > 0) {
      for (int32_t position : now) reused += static_cast<int64_t>(before.count(position));
      followed += static_cast<int64_t>(now.size());
    }
    std::swap(before, now);
  }
  const auto ratio = [](int64_t a, int64_t b) { return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b); };
  s.valid_mean = ratio(s.valid, s.rows);
  s.run_mean = ratio(s.valid, runs);
  s.pages_mean = ratio(pages, s.rows);
  s.keys_a_page = ratio(s.valid, pages);
  s.reuse = ratio(reused, followed);
  return s;
}

}  // namespace smla
