// SPDX-License-Identifier: Apache-2.0
// Where wall time goes, also where much goes on at once: every moment is counted once.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace smla {

/// What is done, in the worker or here. A moment in which several go on counts for the first of them: for the kernel whenever one runs, and for the
/// harness only when neither kernel, oracle nor generation is at work.
enum class Activity : int32_t {
  kernel,     // prepare and launch of kernels under test
  oracle,     // fp64 answers
  generate,   // inputs
  look,       // worker: outputs, guards and inputs after a call
  fill,       // worker: outputs and workspace before a call
  memory,     // worker: getting and giving back guarded memory
  rows,       // judged rows, from the device to the parent
  compare,    // rows against the oracle
  relate,     // rows against rows
  impostors,  // what the case must reject
  report,     // rows of the reports, and what is printed
  ask         // a request is under way, and nothing of the above
};
inline constexpr const char* kActivityNames[] = {"kernel", "oracle",  "generation", "look",      "fill",   "memory",
                                                 "rows",   "compare", "relate",     "impostors", "report", "asking"};
inline constexpr size_t kActivities = std::size(kActivityNames);
inline constexpr size_t kHarnessOwn = static_cast<size_t>(Activity::look);  // from here on it is the harness's own

/// Of one activity, by the steady clock, which all processes of a machine share.
struct Span {
  Activity activity = Activity::ask;
  int64_t begin_ns = 0, end_ns = 0;
  bool operator==(const Span&) const = default;
};

/// Milliseconds of each activity.
using TimeShares = std::array<double, kActivities>;

/// What of [the first begin, the last end) each activity gets.
TimeShares shares(std::span<const Span> spans);

/// Collects spans, from any thread.
class Timeline {
 public:
  void add(std::span<const Span> spans);
  /// All of them, which are forgotten.
  std::vector<Span> take();
  /// The shares up to a moment before which nothing begins that is yet to be added. What is settled is forgotten.
  TimeShares settle(int64_t until_ns);

 private:
  std::mutex mutex_;
  std::vector<Span> spans_;
};

/// The worker process's own, which travels with each answer.
Timeline& worker_timeline();

int64_t steady_now_ns();

/// Notes an activity from here to the end of the scope; nothing where there is no timeline.
class Doing {
 public:
  Doing(Timeline* timeline, Activity activity) : timeline_(timeline), span_{activity, timeline ? steady_now_ns() : 0, 0} {}
  explicit Doing(Activity activity) : Doing(&worker_timeline(), activity) {}
  ~Doing() {
    if (!timeline_) return;
    span_.end_ns = steady_now_ns();
    timeline_->add({&span_, 1});
  }
  Doing(const Doing&) = delete;

 private:
  Timeline* timeline_;
  Span span_;
};

}  // namespace smla
