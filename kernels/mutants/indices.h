// SPDX-License-Identifier: Apache-2.0
// Defects in what becomes of an entry of the list.
#pragma once
#include <chrono>
#include <thread>

#include "kernels/cpu/steps.h"

namespace smla::mutants {

using namespace cpu;

/// The entry that a defect of one key befalls: the middle one.
inline int64_t middle(const Steps& s, const Call& c, const Row& row) { return s.Steps::keys(c, row) / 2; }

struct MinusOneBeforePool final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    Key key = Steps::key(c, row, i);
    if (key.slot == -1) key.load = true;
    return key;
  }
};
struct MinusOneTrusted final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    Key key = Steps::key(c, row, i);
    if (key.slot == -1) key.load = key.counts = true;
    return key;
  }
};
struct MinusOneAsSlot0 final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    const Key key = Steps::key(c, row, i);
    return key.slot == -1 ? Key{0, true, true} : key;
  }
};
struct InvalidLoadsSlot0 final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    const Key key = Steps::key(c, row, i);
    return key.counts ? key : Key{0, true, false};
  }
};
struct NoUpperRangeTest final : Steps {
  bool valid(const Call&, int64_t slot) const override { return slot >= 0; }
};
struct NoLowerRangeTest final : Steps {
  bool valid(const Call& c, int64_t slot) const override { return slot != -1 && slot < c.p.num_slots; }
};
struct OutOfRangeWraps final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    const Key key = Steps::key(c, row, i);
    return {((key.slot % c.p.num_slots) + c.p.num_slots) % c.p.num_slots, true, true};
  }
};
struct OutOfRangeClamped final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    const Key key = Steps::key(c, row, i);
    return key.slot < c.p.num_slots ? key : Key{c.p.num_slots - 1, true, true};
  }
};
struct Slot0Invalid final : Steps {
  bool valid(const Call& c, int64_t slot) const override { return slot > 0 && slot < c.p.num_slots; }
};
struct LastSlotInvalid final : Steps {
  bool valid(const Call& c, int64_t slot) const override { return slot >= 0 && slot < c.p.num_slots - 1; }
};
struct BoundedByContext final : Steps {
  bool valid(const Call& c, int64_t slot) const override { return slot >= 0 && slot < int64_t{c.p.b} * c.p.s_kv; }
};
struct PageBoundedByTable final : Steps {
  bool valid(const Call& c, int64_t slot) const override { return Steps::valid(c, slot) && slot / c.p.page_size < c.p.max_pages; }
};
struct PositionForIndex final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    const Key key = Steps::key(c, row, i);
    return key.counts ? Key{i, true, true} : key;
  }
};
struct FirstKeyIsSlot0 final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override { return i == 0 ? Key{0, true, true} : Steps::key(c, row, i); }
};
struct OneIndexOffByOne final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    Key key = Steps::key(c, row, i);
    if (key.counts && i == middle(*this, c, row)) key.slot += key.slot + 1 < c.p.num_slots ? 1 : -1;
    return key;
  }
};
struct OneKeyDoubled final : Steps {
  int64_t keys(const Call& c, const Row& row) const override {
    const int64_t keys = Steps::keys(c, row);
    return keys > 0 ? keys + 1 : 0;
  }
  Key key(const Call& c, const Row& row, int64_t i) const override {
    return Steps::key(c, row, i == Steps::keys(c, row) ? middle(*this, c, row) : i);
  }
};
struct LastKeyDropped final : Steps {
  int64_t keys(const Call& c, const Row& row) const override { return std::max<int64_t>(Steps::keys(c, row) - 1, 0); }
};
struct FirstKeyDropped final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override { return i == 0 ? Key{-1, false, false} : Steps::key(c, row, i); }
};
struct LastTileDropped final : Steps {
  int64_t keys(const Call& c, const Row& row) const override {
    const int64_t keys = Steps::keys(c, row);
    return keys > kTile ? (keys - 1) / kTile * kTile : keys;
  }
};
struct RemainderDropped final : Steps {
  int64_t keys(const Call& c, const Row& row) const override {
    const int64_t keys = Steps::keys(c, row);
    return keys >= kTile ? keys / kTile * kTile : keys;
  }
};
struct RemainderIsSlot0 final : Steps {
  Key key_behind(const Call&, const Row&, int64_t) const override { return {0, true, true}; }
};
struct TailLanesCounted final : Steps {
  Key key_behind(const Call&, const Row&, int64_t) const override { return {-1, false, true}; }
};
struct TailValuesLoaded final : Steps {
  Key key_behind(const Call& c, const Row& row, int64_t i) const override {
    if (i >= c.max_keys()) return {-1, false, false};
    Key key = Steps::key(c, row, i);
    key.counts = false;
    return key;
  }
};
struct ZeroFillOneLate final : Steps {
  Key key_behind(const Call& c, const Row& row, int64_t i) const override {
    if (i != keys(c, row) || i >= c.max_keys()) return {-1, false, false};
    Key key = Steps::key(c, row, i);
    key.counts = false;
    return key;
  }
};
struct MaskByAddition final : Steps {
  bool loads_v_apart() const override { return true; }
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    Steps::load(c, row, i, !key.counts && side == Side::k ? Key{0, true, false} : key, side, values, scale);
  }
  float masked(float x, bool counts) const override { return x + (counts ? 0.f : -kInf); }
};
struct MaskBeforeScale final : Steps {  // a large finite mask, and a row of nothing else has its maximum there: weight 1 for what was loaded
  Key key(const Call& c, const Row& row, int64_t i) const override {
    const Key key = Steps::key(c, row, i);
    return key.counts ? key : Key{0, true, false};
  }
  float masked(float x, bool counts) const override { return counts ? x : -6e28f; }
};
struct HoleEndsRow final : Steps {
  int64_t keys(const Call& c, const Row& row) const override {
    const int64_t keys = Steps::keys(c, row);
    for (int64_t i = 0; i < keys; ++i)
      if (!Steps::key(c, row, i).counts) return i;
    return keys;
  }
};
struct CountForLength final : Steps {
  int64_t keys(const Call& c, const Row& row) const override {
    int64_t count = 0;
    for (int64_t i = 0, keys = Steps::keys(c, row); i < keys; ++i) count += Steps::key(c, row, i).counts;
    return count;
  }
};
struct DuplicatesDropped final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    const Key key = Steps::key(c, row, i);
    for (int64_t j = 0; j < i; ++j)
      if (key.counts && Steps::key(c, row, j).slot == key.slot) return {-1, false, false};
    return key;
  }
};
struct SlotIn16Bits final : Steps {
  const uint8_t* kv_row(const Call& c, int64_t slot) const override { return Steps::kv_row(c, slot & 0xffff); }
};
struct RunsOfFour final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    const Key key = Steps::key(c, row, i), first = Steps::key(c, row, i / 4 * 4);
    const int64_t slot = first.slot + i % 4;
    return key.counts && first.counts && Steps::valid(c, slot) ? Key{slot, true, true} : key;
  }
};
struct HangsOnInvalidTile final : Steps {
  Key key(const Call& c, const Row& row, int64_t i) const override {
    bool any = false;
    const int64_t begin = i / kTile * kTile;
    for (int64_t j = begin; j < std::min(begin + kTile, Steps::keys(c, row)); ++j) any |= Steps::key(c, row, j).counts;
    while (!any) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the barrier that nobody arrives at
    return Steps::key(c, row, i);
  }
};
struct SkippedTileReadsScratch final : Steps {  // no score is written for a tile without keys, and none is masked
  void scores(const float* q, const float* k, int heads, int keys, int width, const ScaledChannels* segments, int num_segments,
              float* x) const override {
    skipped() = std::all_of(k, k + int64_t{keys} * width, [](float value) { return value == 0.f; });
    if (!skipped()) Steps::scores(q, k, heads, keys, width, segments, num_segments, x);
  }
  float masked(float x, bool counts) const override { return skipped() ? x : Steps::masked(x, counts); }
  static bool& skipped() {
    thread_local bool value = false;
    return value;
  }
};
struct StaleKey final : Steps {  // the last key of a tile is not waited for: the buffer still holds the tile before
  void load(const Call& c, const Row& row, int64_t i, const Key& key, Side side, float* values, float* scale) const override {
    if (i % kTile != kTile - 1) Steps::load(c, row, i, key, side, values, scale);
  }
};
struct TopkLengthOneTooLong final : Steps {
  int64_t keys(const Call& c, const Row& row) const override { return std::min<int64_t>(Steps::keys(c, row) + 1, c.p.topk); }
};

}  // namespace smla::mutants
