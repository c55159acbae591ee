// SPDX-License-Identifier: Apache-2.0
// The stopwatch on a GPU: kernels of known length, nothing, a copy of known bytes, errors; and kernels whose work is not where it should be.
// An executable of its own: without a GPU it says why and ends with 77.
#define CATCH_CONFIG_RUNNER
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>

#include "harness/cuda/cuda_device.h"
#include "harness/cuda/probes.h"
#include "harness/worker/engine.h"
#include "harness/worker/sampler.h"
#include "smla_catch.h"

using namespace smla;

namespace {

int ordinal = 0;

Device& device() {
  std::string why;
  return *open_cuda_device(ordinal, why);
}
template <class F>
double median_us(int runs, F&& once) {
  std::vector<double> us;
  for (int i = 0; i < runs; ++i) us.push_back(once());
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

/// Fills out and lse with a constant, and nothing else: who looks at the time and at the bits has all that is needed.
template <Where kWhere>
int launch_fill(const smla_kernel*, const smla_problem* p, const smla_buffers* b, void*, void* stream) {
  enqueue_fill(stream, b->out, p->b * p->out_stride_bytes[0], 0, kWhere);
  enqueue_fill(stream, b->lse, p->b * p->lse_stride_bytes[0], 0, kWhere);
  return 0;
}
int launch_spin(const smla_kernel* self, const smla_problem* p, const smla_buffers* b, void* workspace, void* stream) {
  enqueue_spin(stream, 100);
  return launch_fill<Where::stream>(self, p, b, workspace, stream);
}
int launch_rejected(const smla_kernel*, const smla_problem*, const smla_buffers*, void*, void* stream) { return enqueue_rejected(stream), 0; }
smla_kernel kernel(const char* name, decltype(smla_kernel::launch) launch) {
  smla_kernel k{};
  k.struct_size = sizeof k;
  k.device = SMLA_DEVICE_CUDA;
  k.name = name;
  k.description = "for the stopwatch's tests";
  k.contract = [](const smla_kernel*, const smla_problem*, smla_contract* c) { return c->deterministic = 1, 0; };
  k.supports = [](const smla_kernel*, const smla_problem*, char*, uint64_t) { return 1; };
  k.workspace_bytes = [](const smla_kernel*, const smla_problem*) { return int64_t{0}; };
  k.launch = launch;
  return k;
}
const smla_kernel kOnStream = kernel("on_stream", launch_fill<Where::stream>), kOwnStream = kernel("own_stream", launch_fill<Where::own_stream>),
                  kForked = kernel("forked", launch_fill<Where::forked>), kSpin = kernel("spin", launch_spin),
                  kRejected = kernel("rejected", launch_rejected);

TimeReply time(const std::vector<Lane>& lanes, const char* line = "decode b=2 s_q=1 h_q=8 s_kv=4096 topk=512") {
  static Engine engine({&kOnStream, &kOwnStream, &kForked, &kSpin, &kRejected}, ordinal);
  TimeRequest request;
  request.c = parse_line(line);
  request.lanes = lanes;
  request.max_noise = 1;
  return engine.time(request);
}

}  // namespace

TEST_CASE("a kernel of known length reads that length") {
  const double empty = median_us(25, [] { return device().timed_us([] { device().launch_nothing(); }); });
  CHECK(empty > 0.5);
  CHECK(empty < 8);  // what the two events cost
  for (double us : {50.0, 200.0, 2000.0}) {
    const double read = median_us(15, [&] { return device().timed_us([&] { enqueue_spin(device().stream(), us); }); });
    std::printf("spin %6.0f us: read %.2f us, empty %.2f us\n", us, read, empty);
    CHECK(read >= us - 1);  // the nanosecond clock may tick in microseconds
    CHECK(read <= us + empty + 2);
  }
  for (double us : {5.0, 50.0}) {
    const double read = median_us(15, [&] { return device().timed_us([&] { enqueue_delay(device().stream(), us); }); });
    std::printf("delay %5.0f us: read %.2f us\n", us, read);
    CHECK(read >= us * 0.98);
    CHECK(read <= us * 1.1 + empty + 1);  // the clock may be below its highest rate
  }
}

TEST_CASE("a graph of known length reads that length, and less overhead a launch than single ones") {
  std::string why;
  constexpr int kCalls = 20;
  const auto recorded = [&](const std::function<void()>& work) {
    auto recording = device().record(
        [&] {
          for (int i = 0; i < kCalls; ++i) work();
        },
        why);
    REQUIRE(recording);
    return median_us(15, [&] { return device().timed_us([&] { device().play(*recording); }) / kCalls; });
  };
  const double spin = recorded([] { enqueue_spin(device().stream(), 50); }), empty = recorded([] { device().launch_nothing(); });
  const double single = median_us(25, [] { return device().timed_us([] { device().launch_nothing(); }); });
  std::printf("graph of %d: spin 50 us reads %.2f us, empty %.2f us (single: %.2f us)\n", kCalls, spin, empty, single);
  CHECK(spin >= 49);
  CHECK(spin <= 50 + empty + 1);
  CHECK(empty < single);
  CHECK(device().record([] {}, why) == nullptr);
  CHECK_THAT(why, ContainsSubstring("launches nothing"));
}

TEST_CASE("a copy of known bytes reads a rate that memory has") {
  constexpr int64_t kBytes = int64_t{512} << 20;
  const Block from = device().allocate("from", kBytes, Guard::canary), to = device().allocate("to", kBytes, Guard::canary);
  device().fill_random(from.data, kBytes, 1);
  const auto copy = [&](int64_t bytes) {
    return median_us(9, [&] { return device().timed_us([&] { enqueue_copy(device().stream(), to.data, from.data, bytes); }); });
  };
  const double whole = copy(kBytes), half = copy(kBytes / 2);
  const double gbps = 2.0 * kBytes / whole / 1e3;
  std::printf("copy %lld MiB: %.1f us, %.0f GB/s read and written; half of it: %.1f us\n", static_cast<long long>(kBytes >> 20), whole, gbps, half);
  CHECK(gbps > 100);
  CHECK(gbps < 20000);
  CHECK(whole / half == Approx(2).epsilon(0.05));
  CHECK_FALSE(device().first_difference(from.data, to.data, kBytes));
}

TEST_CASE("a gather loads all of its rows: no way of it is faster than reading as many bytes in order") {
  constexpr int64_t kBytes = int64_t{512} << 20, kRow_bytes = 1152;
  const Block pool = device().allocate("pool", kBytes, Guard::canary);
  device().fill_random(pool.data, kBytes, 1);
  std::vector<int32_t> slots(kBytes / kRow_bytes);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), std::mt19937(1));
  const Block list = device().allocate("slots", 4 * std::ssize(slots), Guard::canary);
  device().upload(list.data, slots.data(), 4 * std::ssize(slots));
  // The rate of a long read: of 512 MiB its last blocks end apart, so that a gather of many small ones may be faster (seen: 120 and 125 us).
  constexpr int kLonger = 4;
  double read_us = 1e9;
  {
    const Block longer = device().allocate("longer", kLonger * kBytes, Guard::canary);
    device().fill_random(longer.data, longer.bytes, 2);
    const auto read = [&] { enqueue_read(device().stream(), longer.data, longer.bytes); };
    for (int i = 0; i < 9; ++i) read_us = std::min(read_us, device().timed_us(read) / kLonger);
  }
  for (int way = 0; way < device().gather_ways(); ++way) {
    const auto gather_us = [&](int64_t n) {
      const PoolRows rows{pool.data, reinterpret_cast<const int32_t*>(list.data), n, 64 * kRow_bytes, 64, kRow_bytes};
      return median_us(9, [&] {
        device().flush_cache(kBytes);  // none of its rows are left in L2
        return device().timed_us([&] { device().gather(rows, way, 1); });
      });
    };
    const double whole = gather_us(std::ssize(slots)), half = gather_us(std::ssize(slots) / 2);
    std::printf("gather way %d: %.1f us of 512 MiB, half of it %.1f, in order and at length %.1f\n", way, whole, half, read_us);
    CHECK(whole >= read_us / 1.03);
    CHECK(whole < 2 * read_us);
    CHECK(whole / half == Approx(2).epsilon(0.1));
  }
}

TEST_CASE("a cold sample finds none of its rows in L2: it lasts as long as one of rows that were never read") {
  constexpr int kRuns = 15;
  constexpr int64_t kRow_bytes = 1152, kRows = 8 * 2048, kLists = kRuns + 1;  // rows of the case below; every run has rows of its own
  const Block pool = device().allocate("pool", kLists * kRows * kRow_bytes, Guard::canary);
  device().fill_random(pool.data, pool.bytes, 1);
  std::vector<int32_t> slots(kLists * kRows);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), std::mt19937(1));
  const Block lists = device().allocate("slots", 4 * std::ssize(slots), Guard::canary);
  device().upload(lists.data, slots.data(), lists.bytes);
  const int64_t clearing_bytes = 2 * device().last_level_cache_bytes();
  // `timed` of each run's own rows; `before`, and behind it what clears L2, of the same ones or of those that no run has.
  const auto run_us = [&](bool same_before, const auto& before, const auto& timed) {
    int64_t run = 0;
    return median_us(kRuns, [&] {
      before(same_before ? run : kRuns);
      device().flush_cache(clearing_bytes);
      return device().timed_us([&] { timed(run++); });
    });
  };
  double never_us = 1e9;
  for (int way = 0; way < device().gather_ways(); ++way) {
    const auto gather = [&](int64_t list) {
      const auto* own = reinterpret_cast<const int32_t*>(lists.data) + list * kRows;
      device().gather({pool.data, own, kRows, 64 * kRow_bytes, 64, kRow_bytes}, way, 1);
    };
    const double never = run_us(false, gather, gather), before = run_us(true, gather, gather);
    std::printf("gather way %d of 18.9 MB: rows never read %.2f us, read just before %.2f\n", way, never, before);
    CHECK(before >= 0.97 * never);
    never_us = std::min(never_us, never);
  }
  constexpr int64_t kBytes = kRows * kRow_bytes;
  const auto read = [&](int64_t part) { enqueue_read(device().stream(), pool.data + part * kBytes, kBytes); };
  const auto read_to_stay = [&](int64_t part) { enqueue_read(device().stream(), pool.data + part * kBytes, kBytes, true); };
  const double never_read_us = run_us(false, read_to_stay, read), to_stay_us = run_us(true, read_to_stay, read);
  std::printf("18.9 MB in order: never read %.2f us, read to stay just before %.2f\n", never_read_us, to_stay_us);
  CHECK(to_stay_us >= 0.97 * never_read_us);

  const TimeReply reply = time({{Lane::Work::gather, "spin", false, true},
                                {Lane::Work::gather, "spin", true, true},
                                {Lane::Work::empty, "spin", false, true},
                                {Lane::Work::empty, "spin", true, true}},
                               "decode b=8 s_q=1 h_q=8 s_kv=32768 topk=2048 pattern=scattered");
  INFO(reply.detail);
  REQUIRE(reply.status == Status::pass);
  std::vector<double> us;
  for (const LaneReply& lane : reply.lanes) us.push_back(spread(lane.time_us).median);
  std::printf("sampled: by events %.2f us, in a graph %.2f; empty %.2f and %.2f\n", us[0], us[1], us[2], us[3]);
  CHECK(us[0] == Approx(never_us).epsilon(0.06));
  CHECK(us[1] < us[0]);
}

TEST_CASE("the sampler: known lengths through the door, in turn, events and graphs") {
  const TimeReply reply = time({{Lane::Work::kernel, "spin", false, true},
                                {Lane::Work::kernel, "spin", true, true},
                                {Lane::Work::kernel, "spin", true, false},
                                {Lane::Work::gather, "spin", false, true},
                                {Lane::Work::gather, "spin", true, true},
                                {Lane::Work::empty, "spin", false, true}});
  INFO(reply.detail);
  REQUIRE(reply.status == Status::pass);
  for (size_t i = 0; i < reply.lanes.size(); ++i) {
    const LaneReply& lane = reply.lanes[i];
    INFO(i << " " << lane.detail);
    REQUIRE(lane.status == Status::pass);
    REQUIRE(lane.time_us.size() >= 6);
    std::vector<double> us = lane.time_us;
    std::sort(us.begin(), us.end());
    std::printf("lane %zu: median %.2f us, %d calls a sample, cold ratio %.2f, %.0f MHz, %.0f W, %.0f C\n", i, us[us.size() / 2],
                lane.calls_per_sample, lane.cold_ratio, lane.sm_clock_mhz.front(), lane.power_w_median, lane.temperature_c_max);
    if (i < 3) CHECK(us[us.size() / 2] >= 99);
    if (i < 3) CHECK(us[us.size() / 2] < 150);
    if (i >= 3) CHECK(us[us.size() / 2] < 30);
  }
  CHECK(reply.lanes[1].calls_per_sample >= 5);
  CHECK(reply.lanes[4].calls_per_sample >= 20);
  CHECK(reply.lanes[4].cold_ratio >= 1);
}

TEST_CASE("work that is not on the stream is refused, work that is joined to it is not; a rejected launch is an error") {
  const TimeReply reply = time({{Lane::Work::kernel, "on_stream", false, true},
                                {Lane::Work::kernel, "own_stream", false, true},
                                {Lane::Work::kernel, "forked", false, true},
                                {Lane::Work::kernel, "forked", true, true},
                                {Lane::Work::kernel, "rejected", false, true}});
  INFO(reply.detail);
  REQUIRE(reply.status == Status::pass);
  CHECK(reply.lanes[0].status == Status::pass);
  CHECK(reply.lanes[1].status == Status::fail);
  CHECK_THAT(reply.lanes[1].detail, ContainsSubstring("cannot be timed"));
  CHECK(reply.lanes[2].status == Status::pass);
  CHECK(reply.lanes[3].status == Status::pass);
  CHECK(reply.lanes[4].status == Status::crash);
  CHECK_THAT(reply.lanes[4].detail, ContainsSubstring("launch rejected"));
  for (const LaneReply& lane : reply.lanes) std::printf("%s %s\n", std::string(name_of(lane.status)).c_str(), lane.detail.c_str());
}

int main(int argc, char** argv) {
  std::string why;
  if (!open_cuda_device(ordinal, why)) {
    std::printf("left out: %s\n", why.c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
