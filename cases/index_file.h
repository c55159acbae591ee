// SPDX-License-Identifier: Apache-2.0
// What an indexer picked in a real model, as numpy writes it: pattern=file:PATH takes a case's lists from it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smla {

/// An array of LOGICAL positions, [...][columns] with all dimensions but the last joined to rows; negative = no key.
struct IndexFile {
  int64_t rows = 0, columns = 0;
  std::vector<int32_t> positions;  // [rows][columns]
  int32_t at(int64_t row, int64_t column) const { return positions[static_cast<size_t>(row * columns + column)]; }
};

/// An .npy file of int32 or int64 in C order. Throws UsageError naming the file and what is wrong with it.
IndexFile read_index_file(const std::string& path);
/// The same of a file's bytes; `origin` is what errors call it.
IndexFile parse_index_file(std::string_view bytes, const std::string& origin);

/// What the lists look like to a kernel.
struct IndexStatistics {
  int64_t rows = 0, columns = 0, valid = 0;
  int32_t least = 0, largest = 0;  // positions; 0 where there is no valid entry
  double valid_mean = 0;           // a row
  int64_t valid_min = 0, valid_max = 0, empty_rows = 0, duplicate_rows = 0, ascending_rows = 0;
  double run_mean = 0;  // entries in a run of consecutive positions, in the order of the list
  int64_t run_max = 0;
  double pages_mean = 0, keys_a_page = 0;  // pages that a row touches; its keys in a touched page
  double reuse = 0;                        // share of a row's keys that the row before names too, over rows with a row before
  int64_t tail_only_rows = 0, leading_rows = 0, interleaved_rows = 0;  // where invalid entries stand: behind all valid ones; (also) first; between
};
IndexStatistics statistics_of(const IndexFile& file, int32_t page_size);

}  // namespace smla
