// SPDX-License-Identifier: Apache-2.0
#include "cases/pattern.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace smla {
namespace {

/// How many distinct keys the row can have.
int32_t room(const Row& row) { return std::min(row.n, row.k_t); }

void scattered_prefix(const Row& row, int32_t count) { row.distinct.draw(row.random, row.n, count, row.list); }

void contiguous(const Row& row) { std::iota(row.list, row.list + room(row), row.n - room(row)); }

void dense(const Row& row) { std::iota(row.list, row.list + room(row), 0); }

void scattered(const Row& row) { scattered_prefix(row, room(row)); }

void sorted(const Row& row) {
  scattered(row);
  std::sort(row.list, row.list + room(row));
}

void reversed(const Row& row) {
  sorted(row);
  std::reverse(row.list, row.list + room(row));
}

/// Runs from the last slots of a logical page into the first of the next; no run meets another.
void page_straddling(const Row& row) {
  const int32_t page = row.page_size, half = std::max(1, page / 2), step = page == 1 ? 2 : 1;  // pages of one slot: every other border
  std::vector<int32_t> borders;
  for (int32_t border = 1; int64_t{border} * page < row.n; border += step) borders.push_back(border * page);
  row.random.shuffle(borders.data(), static_cast<int64_t>(borders.size()));
  int32_t filled = 0;
  for (const int32_t border : borders) {
    const auto before = static_cast<int32_t>(row.random.between(1, half)), behind = static_cast<int32_t>(row.random.between(1, half));
    for (int32_t position = border - before; position < std::min(border + behind, row.n) && filled < row.k_t; ++position)
      row.list[filled++] = position;
  }
}

void one_page(const Row& row) {
  if (row.n == 0) return;
  const auto first = static_cast<int32_t>(row.random.below((row.n - 1) / row.page_size + 1)) * row.page_size;
  const int32_t in_page = std::min(row.page_size, row.n - first), count = std::min(in_page, row.k_t);
  row.distinct.draw(row.random, in_page, count, row.list);
  for (int32_t i = 0; i < count; ++i) row.list[i] += first;
}

/// One key from every page; where there are more pages than entries, from as many pages as there are entries.
void every_page(const Row& row) {
  if (row.n == 0) return;
  const int32_t pages = (row.n - 1) / row.page_size + 1, count = std::min(pages, row.k_t);
  row.distinct.draw(row.random, pages, count, row.list);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t first = row.list[i] * row.page_size;
    row.list[i] = first + static_cast<int32_t>(row.random.below(std::min(row.page_size, row.n - first)));
  }
}

/// The t-th of the counts at which tiled loops go wrong, then a random one; at most `most`.
int32_t edge_count(int64_t t, int32_t most, int32_t list, Random& random) {
  const int32_t edges[] = {kTile + 1, 1, list - 1, 0, kTile, list, kTile - 1};
  const int64_t i = t % 8;
  return i == 7 ? static_cast<int32_t>(random.between(0, most)) : std::clamp(edges[i], 0, most);
}

void padded(const Row& row) { scattered_prefix(row, edge_count(row.t, room(row), row.k_t, row.random)); }

void leading_invalid(const Row& row) {
  const int32_t tiles = (row.k_t - 1) / kTile;  // whole tiles that leave an entry behind them
  const auto skipped = static_cast<int32_t>(row.t % 2 == 0 ? std::min(tiles, 1) : row.random.between(std::min(tiles, 1), tiles)) * kTile;
  row.distinct.draw(row.random, row.n, std::min(row.n, row.k_t - skipped), row.list + skipped);
}

/// Whether entry i of a list of k is a hole: a quarter of the entries, by row also the first, the last, or a whole tile.
bool is_hole(const Row& row, int32_t i) {
  const bool special = row.t % 4 == 1 ? i == 0 : row.t % 4 == 2 ? i == row.k_t - 1 : row.t % 4 == 3 ? i / kTile == 1 : false;
  return row.random.one_in(4) || special;
}

template <class Invalid>
void with_holes(const Row& row, Invalid invalid) {
  scattered(row);
  for (int32_t i = 0; i < room(row); ++i)
    if (is_hole(row, i)) row.list[i] = invalid(i);
}

void interleaved_invalid(const Row& row) {
  with_holes(row, [](int32_t) { return kNoKey; });
}

void out_of_range(const Row& row) {
  for (int32_t i = 0; i < row.k_t; ++i) row.list[i] = kOutOfRange - i % kOutOfRangeKinds;  // the padding too
  with_holes(row, [](int32_t i) { return kOutOfRange - i % kOutOfRangeKinds; });
}

void all_invalid(const Row& row) {
  if (!is_left_empty(row.t, row.tokens)) scattered(row);
}

/// About two entries a key: the second again beside the first, the others anywhere.
void duplicates(const Row& row) {
  if (row.n == 0) return;
  const int32_t distinct = std::min(row.n, (row.k_t + 1) / 2);
  scattered_prefix(row, distinct);
  for (int32_t i = distinct; i < row.k_t; ++i) row.list[i] = row.list[row.random.below(distinct)];
  row.random.shuffle(row.list, row.k_t);
  if (row.k_t > 1) row.list[1] = row.list[0];
  if (row.k_t > kTile) row.list[kTile] = row.list[0];
}

/// What an indexer picks: the first few positions, the most recent ones, and a random rest.
void sink_and_recent(const Row& row) {
  const int32_t count = room(row), first = std::min(4, count), recent = std::min(count / 4, count - first), rest = count - first - recent;
  std::iota(row.list, row.list + first, 0);
  row.distinct.draw(row.random, row.n - first - recent, rest, row.list + first);
  for (int32_t i = first; i < first + rest; ++i) row.list[i] += first;
  std::iota(row.list + first + rest, row.list + count, row.n - recent);
}

using Select = void (*)(const Row&);
constexpr Select kSelect[] = {  // in the order of Pattern
    contiguous,
    dense,
    scattered,
    sorted,
    reversed,
    page_straddling,
    one_page,
    every_page,
    padded,
    leading_invalid,
    interleaved_invalid,
    all_invalid,
    out_of_range,
    /*stale_tail*/ scattered,
    duplicates,
    /*short_context*/ scattered,
    /*shared_prefix*/ scattered,
    sink_and_recent,
    /*far*/ scattered,
    /*file*/ nullptr};  // lists.cc reads it
static_assert(std::size(kSelect) == std::size(Names<Pattern>::kAll));

}  // namespace

int32_t choose_k_t(const Case& c, int64_t t, int32_t n) {
  if (c.pattern == Pattern::dense) return n;
  Random random(c.seed, Draw::pattern, static_cast<uint64_t>(c.tokens() + t));
  const int64_t row = c.tokens() == 1 ? 7 : t + 2;  // a single row gets a random length; several begin with topk - 1
  return std::max(c.tokens() == 1 ? 1 : 0, edge_count(row, c.topk, c.topk, random));
}

void select(Pattern pattern, const Row& row) { kSelect[static_cast<size_t>(pattern)](row); }

bool is_left_empty(int64_t t, int64_t tokens) {
  const int64_t in_tile = t % kTile, tile = std::min<int64_t>(kTile, tokens - (t - in_tile));
  return in_tile == 0 || (tile > 2 && in_tile == tile - 1) || (tile > 3 && in_tile == tile / 2) || (tokens > 3 && t == tokens / 2);
}

}  // namespace smla
