// SPDX-License-Identifier: Apache-2.0
// The timing of one case: all its lanes together, by the workers that hold their kernels.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "harness/worker.h"

namespace smla {

/// The lanes of one case: what was asked, and what came back.
class TimedCase {
 public:
  void ask(Worker* worker, Lane lane) {
    if (std::none_of(lanes_.begin(), lanes_.end(), [&](const Entry& e) { return e.worker == worker && e.lane == lane; }))
      lanes_.push_back({worker, std::move(lane), {}});
  }
  const LaneReply* find(const Worker* worker, const Lane& lane) const {
    for (const Entry& e : lanes_)
      if (e.worker == worker && e.lane == lane) return &e.reply;
    return nullptr;
  }
  /// The one of gather or empty, whoever did it.
  const LaneReply* find(Lane::Work work, const Lane& way) const {
    for (const Entry& e : lanes_)
      if (e.lane.work == work && e.lane.graph == way.graph && e.lane.cold == way.cold) return &e.reply;
    return nullptr;
  }
  /// Times all of them, the workers in turn. A worker that dies is asked again, a kernel at a time, so that only the guilty one has no time.
  void run(TimeRequest request);
  int64_t l2_bytes() const { return l2_bytes_; }

 private:
  struct Entry {
    Worker* worker;
    Lane lane;
    LaneReply reply;
  };
  /// Times some of one worker. The reply, if it tells of a failure that concerns all of them.
  std::optional<TimeReply> ask(TimeRequest request, const std::vector<Entry*>& some);
  std::vector<Entry> lanes_;
  int64_t l2_bytes_ = 0;
};

}  // namespace smla
