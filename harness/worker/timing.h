// SPDX-License-Identifier: Apache-2.0
// The sampler: times the lanes of one case in turn, so that what drifts (clocks, temperature, other work) falls on all of them alike.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "harness/worker.h"
#include "harness/worker/kernel_call.h"
#include "harness/worker/sampler.h"

namespace smla {

class LaneTimer {
 public:
  using Find = std::function<const smla_kernel&(const std::string&)>;
  /// Allocates what the lanes need and asks each kernel whether it will: one that declines, or does not fit, ends its own lanes only.
  LaneTimer(const TimeRequest& request, Device& device, int threads, StagedInputs& in, const Find& find, TimeReply& reply);
  ~LaneTimer();
  /// Runs them to the end. A kernel that fails ends its own lanes; Ended is thrown only where nothing more can run on the device.
  void run();

 private:
  struct Subject;
  struct Course;
  void warm_up(Subject& subject);
  void must_be_on_the_stream(Subject& subject);
  std::unique_ptr<Device::Recording> record(Course& course);
  /// One call of the lane, as it is launched or as it was recorded; over outputs that were filled just before, if they are looked at afterwards.
  double call_us(Course& course, Device::Recording* recording, int64_t round, bool fill = false);
  void sample(Course& course, int64_t round);
  std::string enqueue(Subject& subject, const void* kv);
  PoolRows selected_rows(const void* kv) const;
  void choose_way(Course& course);  // of gathering
  void make_cold(bool cold);
  /// As many copies of the pool as asked for, or as fit: how many there are.
  int64_t have_replicas(int64_t count);
  const void* replica(int64_t i) const;
  bool alive(const Course& course) const;
  template <class F>
  void guarded(const std::vector<Course*>& lanes, F&& body);

  const TimeRequest& request_;
  std::minstd_rand coin_{std::random_device{}()};
  Device& device_;
  StagedInputs& in_;
  smla_problem problem_;
  bool evicts_ = false;  // the inputs from the caches; else flush_bytes_ are read over
  int64_t flush_bytes_ = 0;
  Block selected_;               // slots of the distinct rows, where the gather is timed
  std::vector<Block> replicas_;  // more pools of the same bytes, elsewhere in memory
  std::list<Subject> subjects_;  // what is launched: lanes that differ only in timing or cache share one
  std::list<Course> courses_;
};

}  // namespace smla
