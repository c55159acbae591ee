// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "harness/cuda/nvml.h"
#include "kernels/problem.h"

namespace smla {
namespace {

using std::chrono::steady_clock;
double us_since(steady_clock::time_point begin) { return std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count(); }

/// How much of the last-level cache is read over before a cold call, and how much the replicas of a cold graph hold.
constexpr int64_t kColdRatio = 2;
/// Where the pool happens to stand in a GPU's memory shifts a time by a percent, from one allocation to the next. So samples go round so many copies
/// of it.
constexpr int64_t kPlacements = 8;
constexpr double kShort_us = 50;  // below, a graph holds kManyCalls calls or more
constexpr int kManyCalls = 20;
constexpr double kLong_us = 2000;
constexpr double kLooking = 0.01;  // so much of a lane's time goes into filling outputs and looking at what was answered

double median_of(std::vector<double> values) { return values.empty() ? 0 : spread(std::move(values)).median; }

}  // namespace

/// What is launched.
struct LaneTimer::Subject {
  Lane::Work work;
  std::string kernel;
  int way = 0;                       // gather: the fastest of its ways, as the lane calls it
  std::unique_ptr<KernelCall> call;  // none for gather and empty
  std::vector<Course*> courses;
  double estimate_us = 0, prepare_us = 0;
  std::vector<double> host_launch_us;
};

/// A lane under way.
struct LaneTimer::Course {
  const Lane& lane;
  LaneReply& reply;
  Subject& subject;
  StopRule rule;
  std::unique_ptr<Device::Recording> recording;
  std::vector<double> kept, power_w, mem_clock_mhz;  // kept: samples that were not discarded
  double spent_us = 0, looking_us = 0;
  bool done = false, closing = false;  // closing: the next sample is the last one
};

LaneTimer::LaneTimer(const TimeRequest& request, Device& device, int threads, StagedInputs& in, const Find& find, TimeReply& reply)
    : request_(request), device_(device), in_(in) {
  reply.l2_bytes = device.last_level_cache_bytes();
  reply.lanes.resize(request.lanes.size());
  // Cold by taking the inputs out of the caches or, where that cannot be done, by reading over the cache before every call. Replicas of the pool
  // would not do for single calls: a sparse call touches a small part of it, so that a few replicas' worth of selected rows stay in the cache. A
  // graph has nothing else: its replicas are counted by the rows that are read.
  in.stage(device);
  evicts_ = in.evict();
  if (!evicts_) flush_bytes_ = std::min(kColdRatio * reply.l2_bytes, device.available_bytes() / 4);
  problem_ = make_problem(in.in, threads);
  device.describe(problem_);
  for (size_t i = 0; i < request.lanes.size(); ++i) {
    const Lane& lane = request.lanes[i];
    const bool kernel_less = lane.work == Lane::Work::gather || lane.work == Lane::Work::empty;
    const std::string name = kernel_less ? "" : lane.kernel;
    const bool gathers = lane.work == Lane::Work::gather;
    auto subject =
        std::find_if(subjects_.begin(), subjects_.end(), [&](const Subject& s) { return !gathers && s.work == lane.work && s.kernel == name; });
    if (subject == subjects_.end()) subject = subjects_.insert(subject, Subject{.work = lane.work, .kernel = name});
    if (gathers && !selected_.data) {
      const std::vector<int32_t>& slots = in.in.selected;
      const int64_t bytes = 4 * std::ssize(slots);
      selected_ = device.allocate("selected slots", std::max<int64_t>(4, bytes), Guard::canary);
      device.upload(selected_.data, slots.data(), bytes);
    }
    courses_.push_back({lane, reply.lanes[i], *subject, StopRule(request.min_samples, request.max_noise, request.max_time_s), {}, {}, {}, {}});
    subject->courses.push_back(&courses_.back());
  }
  for (Subject& subject : subjects_) {
    if (subject.kernel.empty()) continue;
    guarded(subject.courses, [&] {
      std::optional<DenseChange> dense;
      if (subject.work == Lane::Work::dense) dense = DenseChange{};
      if (subject.work == Lane::Work::dense_topk) dense = DenseChange{in.in.c.topk};
      if (subject.work == Lane::Work::dense_topk && in.in.c.s_q > in.in.c.topk)
        throw Ended{Status::unsupported, "more query tokens than keys: most of them would attend nothing"};
      subject.call = std::make_unique<KernelCall>(find(subject.kernel), device, threads, in.in, dense);
      subject.call->allocate({&in});
      subject.call->dirty_outputs(OutputFill::nan);
      subject.call->dirty_workspace(0, OutputFill::nan);
    });
  }
  if (flush_bytes_) device.flush_cache(flush_bytes_);
  if (device.can_record()) have_replicas(kPlacements);
}
LaneTimer::~LaneTimer() = default;

bool LaneTimer::alive(const Course& course) const { return course.reply.status == Status::pass; }

template <class F>
void LaneTimer::guarded(const std::vector<Course*>& lanes, F&& body) {
  try {
    body();
  } catch (const Ended& ended) {
    if (device_.dead()) throw;
    for (Course* course : lanes) course->reply.status = ended.status, course->reply.detail = ended.detail;
  }
}

std::string LaneTimer::enqueue(Subject& subject, const void* kv) {
  if (subject.call) return subject.call->enqueue(in_, "timed launch", device_.stream(), kv);
  if (subject.work == Lane::Work::empty) return device_.launch_nothing(), "";
  device_.gather(selected_rows(kv), subject.way, problem_.threads);
  return "";
}

PoolRows LaneTimer::selected_rows(const void* kv) const {
  const Inputs& in = in_.in;
  return {static_cast<const std::byte*>(kv ? kv : in_.buffers().kv),
          reinterpret_cast<const int32_t*>(selected_.data),
          std::ssize(in.selected),
          in.page_stride_bytes,
          in.c.page_size,
          static_cast<int32_t>(in.row_bytes)};
}

// The ways are tried as the lane takes its samples, in a graph if it is one: there the slow start of a way is not hidden behind its launch.
void LaneTimer::choose_way(Course& course) {
  Subject& subject = course.subject;
  std::vector<std::unique_ptr<Device::Recording>> recordings(static_cast<size_t>(device_.gather_ways()));
  std::vector<double> best_us(recordings.size(), std::numeric_limits<double>::infinity());
  for (int run = 0; run < 5; ++run)
    for (size_t way = 0; way < recordings.size(); ++way) {
      subject.way = static_cast<int>(way);
      if (run == 0 && course.lane.graph) recordings[way] = record(course);
      best_us[way] = std::min(best_us[way], call_us(course, recordings[way].get(), run));
    }
  subject.way = static_cast<int>(std::min_element(best_us.begin(), best_us.end()) - best_us.begin());
  course.recording = std::move(recordings[static_cast<size_t>(subject.way)]);
}

void LaneTimer::make_cold(bool cold) {
  if (cold && evicts_) in_.evict();
  if (cold && flush_bytes_) device_.flush_cache(flush_bytes_);
}

int64_t LaneTimer::have_replicas(int64_t count) {
  const int64_t pool_bytes = std::max<int64_t>(1, in_.pool().bytes), mine = 1 + std::ssize(replicas_);
  const int64_t room = in_.in.c.pattern == Pattern::far ? 1 : mine + device_.available_bytes() / 3 / pool_bytes;
  count = std::min({count, room, int64_t{256}});
  try {
    while (std::ssize(replicas_) + 1 < count) {
      replicas_.push_back(device_.allocate("kv replica", pool_bytes, Guard::canary));
      device_.copy(replicas_.back().data, in_.pool().data, pool_bytes);
    }
  } catch (const OutOfMemory&) {}  // then so many
  return 1 + std::ssize(replicas_);
}

const void* LaneTimer::replica(int64_t i) const {
  const size_t n = replicas_.size() + 1, at = static_cast<size_t>(i) % n;
  return at == 0 ? nullptr : replicas_[at - 1].data + in_.pool_lead_bytes();
}

void LaneTimer::warm_up(Subject& subject) {
  const auto wait = [&](std::string error) {
    if (subject.call) subject.call->settle("warm-up launch", std::move(error));
    else if (std::string text = device_.synchronize(); !text.empty()) throw DeviceError(text);
  };
  if (subject.call) subject.prepare_us = device_.timed_us([&] { subject.call->prepare(in_, "prepare"); });
  for (int i = 0; i < 3; ++i) {
    std::string error;
    const double us = device_.timed_us([&] { error = enqueue(subject, nullptr); });
    wait(error);
    subject.estimate_us = i < 2 ? us : std::min(subject.estimate_us, us);
  }
  if (subject.work == Lane::Work::kernel && device_.can_record()) must_be_on_the_stream(subject);
}

void LaneTimer::must_be_on_the_stream(Subject& subject) {
  KernelCall& call = *subject.call;
  const uint64_t out = call.out_hash(), lse = call.lse_hash();
  std::string why, error;
  const auto recording = device_.record([&] { error = call.enqueue(in_, "launch while recorded", device_.stream()); }, why);
  call.settle("launch while recorded", error);
  if (!recording) throw Ended{Status::fail, "cannot be timed: " + why};
  call.dirty_outputs(OutputFill::nan);
  device_.play(*recording);
  const bool same = call.out_hash() == out && call.lse_hash() == lse;  // enqueued behind the recording: nothing else is waited for
  if (call.contract.deterministic ? !same : !call.unwritten(OutputFill::nan).empty())
    throw Ended{
        Status::fail,
        "cannot be timed: replayed from a graph, over filled outputs, it does not answer as when launched: work on a stream of its own, on the "
        "host, or kept from an earlier call"};
  call.settle("replay", "");
}

std::unique_ptr<Device::Recording> LaneTimer::record(Course& course) {
  if (!device_.can_record()) throw Ended{Status::skipped, "graph replay needs a GPU"};
  const double estimate_us = course.subject.estimate_us;
  int calls = estimate_us < kShort_us ? kManyCalls : estimate_us < 20 * kShort_us ? 5 : 1;
  if (course.lane.cold) {
    // Each call reads another replica of the pool; together the rows that they read pass the cache so many times before one is read again.
    const Inputs& in = in_.in;
    const int64_t read_bytes = std::max<int64_t>(1, std::ssize(in.selected) * in.row_bytes), l2_bytes = device_.last_level_cache_bytes();
    const int64_t wanted = (kColdRatio * l2_bytes + read_bytes - 1) / read_bytes, distinct = have_replicas(wanted);
    calls = std::max(calls, static_cast<int>(std::min(wanted, distinct)));
    const double passed = static_cast<double>(std::min<int64_t>(calls, distinct) * read_bytes) / static_cast<double>(l2_bytes);
    if (calls > 1) course.reply.cold_ratio = passed;  // a single one comes behind a flush, as without a graph
  }
  std::string why, error;
  auto recording = device_.record(
      [&] {
        for (int i = 0; i < calls && error.empty(); ++i) error = enqueue(course.subject, course.lane.cold ? replica(i) : nullptr);
      },
      why);
  if (!error.empty()) throw Ended{Status::crash, "launch while recorded: " + error};
  if (!recording) throw Ended{Status::fail, "cannot be timed: " + why};
  course.reply.calls_per_sample = calls;
  return recording;
}

double LaneTimer::call_us(Course& course, Device::Recording* recording, int64_t round, bool fill) {
  Subject& subject = course.subject;
  std::string error;
  // The same call before it, so that nobody's time depends on whose code ran last: instruction caches are as full as a second call finds them. Of a
  // long call that is not worth its time.
  if (!course.lane.cold || subject.estimate_us < kLong_us) error = enqueue(subject, replica(round));
  if (fill) {  // not before that call: what it writes could pass for the timed one's
    const auto filling = steady_clock::now();
    subject.call->dirty_outputs(OutputFill::nan);
    course.looking_us += us_since(filling);
  }
  make_cold(course.lane.cold);
  double us = 0;
  if (error.empty()) {
    if (recording) us = device_.timed_us([&] { device_.play(*recording); }) / course.reply.calls_per_sample;
    else
      us = device_.timed_us([&] {
        const auto host = steady_clock::now();
        error = enqueue(subject, replica(round));
        subject.host_launch_us.push_back(us_since(host));
      });
  }
  if (subject.call) subject.call->settle("timed launch", error);
  else if (std::string text = device_.synchronize(); !text.empty()) throw DeviceError(text);
  return us;
}

// The last sample's answer is looked at, and of the others' as many as are paid for, picked by chance: a kernel that is right only now and then
// cannot keep time with them.
void LaneTimer::sample(Course& course, int64_t round) {
  const auto begin = steady_clock::now();
  LaneReply& reply = course.reply;
  const KernelCall* const call = course.subject.call.get();
  const bool looks = call && (course.closing || (course.looking_us <= kLooking * course.spent_us && coin_() % 2));
  const double us = call_us(course, course.recording.get(), round, looks);
  const Conditions now = device_.conditions();
  reply.time_us.push_back(us);
  reply.round.push_back(round);
  reply.sm_clock_mhz.push_back(now.sm_clock_mhz);
  reply.throttle.push_back(now.throttle);
  course.power_w.push_back(now.power_w);
  course.mem_clock_mhz.push_back(now.mem_clock_mhz);
  reply.temperature_c_max = std::max(reply.temperature_c_max, now.temperature_c);
  if (!(now.throttle & kThrottleSlowdown)) course.kept.push_back(us);
  if (looks) {
    const auto looking = steady_clock::now();
    const KernelCall::Looked looked = call->look(OutputFill::nan);
    if (!looked.unwritten.empty()) throw Ended{Status::fail, "after a timed call: " + looked.unwritten};
    reply.out_hash.push_back(looked.out_hash);
    reply.lse_hash.push_back(looked.lse_hash);
    course.looking_us += us_since(looking);
  }
  course.spent_us += us_since(begin);
}

void LaneTimer::run() {
  for (Subject& subject : subjects_)
    if (alive(*subject.courses.front())) guarded(subject.courses, [&] { warm_up(subject); });
  std::vector<Course*> order;
  for (Course& course : courses_) {
    if (!alive(course)) continue;
    if (course.lane.cold) course.reply.cold_ratio = static_cast<double>(flush_bytes_) / static_cast<double>(device_.last_level_cache_bytes());
    guarded({&course}, [&] {
      if (course.subject.work == Lane::Work::gather) choose_way(course);
      else if (course.lane.graph) course.recording = record(course);
    });
    if (alive(course)) order.push_back(&course);
  }
  // Rounds go there and back in turn, every two of them from another start: nobody is always first, or always behind the same neighbour.
  // What kernels are held against is timed beside them, and no longer.
  const auto is_kernel = [](const Course* c) { return c->lane.work == Lane::Work::kernel; };
  const bool any_kernel = std::any_of(order.begin(), order.end(), is_kernel);
  for (int64_t round = 0; std::any_of(order.begin(), order.end(), [](const Course* c) { return !c->done; }); ++round) {
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t at = (i + static_cast<size_t>(round / 2)) % order.size();
      Course& course = *order[round % 2 ? (order.size() - at) % order.size() : at];
      if (course.done) continue;
      guarded({&course}, [&] {
        sample(course, round);
        if (course.closing) {
          course.done = true;
        } else if (const auto stop = course.rule.after(course.kept, course.spent_us / 1e6)) {
          course.reply.stop_reason = *stop;
          course.closing = true;
        } else if (any_kernel && std::ssize(course.kept) >= request_.min_samples &&
                   std::none_of(order.begin(), order.end(), [&](const Course* c) { return is_kernel(c) && !c->done; })) {
          course.reply.stop_reason = "kernels_done";
          course.closing = true;
        }
      });
      course.done |= !alive(course);
    }
  }
  for (Course* course : order) {
    if (!alive(*course)) continue;
    const Subject& subject = course->subject;
    LaneReply& reply = course->reply;
    if (course->kept.empty()) reply.status = Status::skipped, reply.detail = "every sample was discarded: thermal or hardware slowdown";
    reply.prepare_us = subject.prepare_us;
    if (device_.can_record()) reply.host_launch_us = median_of(subject.host_launch_us);  // on the host the launch is the work
    reply.power_w_median = median_of(course->power_w);
    reply.mem_clock_mhz = median_of(course->mem_clock_mhz);
    if (!subject.call) continue;
    if (const auto text = subject.call->strays(OutputFill::nan))
      reply.status = Status::fail, reply.detail = "timed launches touched what is not theirs: " + *text;
    reply.workspace_bytes = subject.call->workspace_bytes();
    reply.splits_used = subject.call->splits_used();
  }
}

}  // namespace smla
