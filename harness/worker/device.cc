// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/device.h"

#include <algorithm>
#include <utility>

namespace smla {

Block::~Block() {
  if (!device) return;
  const Doing note(Activity::memory);
  device->release(*this);
}
void Block::swap(Block& other) noexcept {
  std::swap(name, other.name);
  std::swap(data, other.data);
  std::swap(bytes, other.bytes);
  std::swap(device, other.device);
  std::swap(mapped, other.mapped);
  std::swap(mapped_bytes, other.mapped_bytes);
  std::swap(canary_before_bytes, other.canary_before_bytes);
  std::swap(canary_after_bytes, other.canary_after_bytes);
}

std::vector<Range> in_whole_units(std::vector<Range> ranges, int64_t unit, int64_t bytes) {
  const auto up = [unit](int64_t n) { return (n + unit - 1) / unit * unit; };
  std::vector<Range> whole;
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.begin < b.begin; });
  for (Range r : ranges) {
    r.begin = std::max<int64_t>(0, r.begin / unit * unit);
    r.end = std::min(up(r.end), up(bytes));
    if (r.begin >= r.end) continue;
    if (!whole.empty() && r.begin <= whole.back().end) whole.back().end = std::max(whole.back().end, r.end);
    else whole.push_back(r);
  }
  return whole;
}

}  // namespace smla
