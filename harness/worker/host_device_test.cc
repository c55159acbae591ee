// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/host_device.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "harness/worker/blackbox.h"
#include "harness/worker/hash.h"
#include "harness/worker/staged.h"
#include "kernels/problem.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// Whether the page of an address can be read, asked of the kernel and not by reading.
bool readable(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin, end;
    char r;
    if (std::sscanf(line.c_str(), "%lx-%lx %c", &begin, &end, &r) == 3 && reinterpret_cast<uintptr_t>(address) >= begin &&
        reinterpret_cast<uintptr_t>(address) < end)
      return r == 'r';
  }
  return false;
}

}  // namespace

TEST_CASE("what is evicted is read from memory again") {
  constexpr int64_t kLine = 64, kLines = 2048;
  Device& device = host_device();
  Block block = device.allocate("x", kLines * kLine, Guard::canary);
  for (int64_t i = 0; i < kLines; ++i) {             // one ring through all lines, of which no prefetcher knows the way
    const int64_t next = (i * 1021 + 577) % kLines;  // full period: 577 is odd, 1020 a multiple of 4
    std::memcpy(block.data + i * kLine, &next, sizeof next);
  }
  const auto walk_us = [&] {
    volatile int64_t at = 0;
    return device.timed_us([&] {
      for (int64_t step = 0, i = at; step < kLines; ++step) {
        std::memcpy(&i, block.data + i * kLine, sizeof i);
        at = i;
      }
    });
  };
  double warm_us = 1e9, cold_us = 1e9;  // the best of many: other work of the machine only adds
  for (int i = 0; i < 20; ++i) {
    walk_us();
    warm_us = std::min(warm_us, walk_us());
    if (!device.evict(block.data, block.bytes)) return;  // this CPU has no CLFLUSHOPT
    cold_us = std::min(cold_us, walk_us());
  }
  CAPTURE(warm_us, cold_us);
  CHECK(cold_us > 3 * warm_us);
}

TEST_CASE("every byte beside a block is watched, or not mapped") {
  Device& device = host_device();
  const Guard guard = GENERATE(Guard::canary, Guard::fault_before, Guard::fault_after);
  const int64_t bytes = GENERATE(1, 256, 1000, 4096, 100000);
  Block block = device.allocate("x", bytes, guard);
  CHECK(reinterpret_cast<uintptr_t>(block.data) % 256 == 0);
  CHECK(!device.damaged(block));
  std::memset(block.data, 1, static_cast<size_t>(bytes));
  CHECK(!device.damaged(block));
  for (int64_t at : {int64_t{-1}, int64_t{-256}, int64_t{-1152}, bytes, bytes + 1, bytes + 1151}) {
    if (!readable(block.data + at)) continue;
    INFO(at);
    block.data[at] = block.data[at] ^ std::byte{4};
    CHECK(device.damaged(block) == at);
    block.data[at] = block.data[at] ^ std::byte{4};
  }
  CHECK(readable(block.data - 1) == (guard != Guard::fault_before));
  CHECK(readable(block.data + (bytes + 255) / 256 * 256) == (guard != Guard::fault_after));
  CHECK(readable(block.data + bytes - 1));
}

TEST_CASE("more than there is, is refused before it is touched") {
  CHECK_THROWS_AS(host_device().allocate("x", int64_t{1} << 50, Guard::canary), OutOfMemory);
  CHECK_THROWS_AS(host_device().allocate("x", host_available_bytes() + (int64_t{1} << 30), Guard::canary), OutOfMemory);
}

TEST_CASE("a reservation is backed where asked, and only there") {
  Device& device = host_device();
  Block block = device.reserve("x", int64_t{1} << 40);
  const auto backed =
      device.back(block, {{int64_t{3} << 32, (int64_t{3} << 32) + 10}, {5000, 5001}, {4090, 4100}, {(int64_t{1} << 40) - 1, int64_t{1} << 40}});
  REQUIRE(backed.size() == 3);
  CHECK(backed[0].begin == 0);
  CHECK(backed[0].end == 8192);
  CHECK(backed[1].begin == int64_t{3} << 32);
  CHECK(backed[2].end == int64_t{1} << 40);
  for (Range r : backed) std::memset(block.data + r.begin, 1, static_cast<size_t>(r.end - r.begin));
  CHECK(!readable(block.data + 8192));
  CHECK(!readable(block.data + (int64_t{3} << 32) - 1));
}

TEST_CASE("a change of one bit changes the hash, wherever it is; strides do not") {
  Device& device = host_device();
  std::vector<std::byte> bytes(200000, std::byte{7});
  const std::vector<Range> all = {{0, 200000}};
  const uint64_t before = device.hash(bytes.data(), all);
  for (size_t at : {0ul, 1ul, 7ul, 8ul, 31ul, 65535ul, 65536ul, 131077ul, 199999ul}) {
    bytes[at] = bytes[at] ^ std::byte{128};
    CHECK(device.hash(bytes.data(), all) != before);
    bytes[at] = bytes[at] ^ std::byte{128};
  }
  CHECK(device.hash(bytes.data(), all) == before);
  std::swap(bytes[0] = std::byte{1}, bytes[70000]);  // equal pieces in another order
  CHECK(device.hash(bytes.data(), all) != before);

  std::vector<std::byte> dense(2 * 3 * 4 * 10), wide(10000);
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<std::byte>(mix64(i));
  const Rows packed{{2, 3, 4}, {120, 40, 10}, 10}, strided{{2, 3, 4}, {4000, 1000, 50}, 10};
  for (int64_t r = 0; r < 24; ++r) std::memcpy(&wide[static_cast<size_t>(strided.offset(r))], &dense[static_cast<size_t>(r * 10)], 10);
  CHECK(packed.extent_bytes() == 240);
  CHECK(packed.offset(23) == 230);
  CHECK(device.hash(dense.data(), packed) == device.hash(wide.data(), strided));
  wide[static_cast<size_t>(strided.offset(23)) + 9] ^= std::byte{1};
  CHECK(device.hash(dense.data(), packed) != device.hash(wide.data(), strided));
}

TEST_CASE("an element that holds its fill is found, and a byte between rows that does not") {
  Device& device = host_device();
  const Rows rows{{2, 2, 2}, {1000, 400, 100}, 64};
  std::vector<std::byte> bytes(2000);
  const int element = GENERATE(2, 4);
  device.fill(bytes.data(), 2000, 0x7fd5);
  CHECK(device.first_unwritten(bytes.data(), rows, element, 0x7fd5) == 0);
  for (int64_t r = 0; r < 8; ++r) std::memset(&bytes[static_cast<size_t>(rows.offset(r))], 0, 64);
  CHECK(!device.first_unwritten(bytes.data(), rows, element, 0x7fd5));
  CHECK(!device.first_stray(bytes.data(), 2000, rows, 0x7fd5));
  device.fill(bytes.data() + 1500 + 60, 4, 0x7fd5);
  CHECK(device.first_unwritten(bytes.data(), rows, element, 0x7fd5) == 1560);
  for (size_t at : {64ul, 399ul, 570ul, 1999ul}) {
    const std::byte kept = bytes[at];
    bytes[at] = std::byte{0};
    CHECK(device.first_stray(bytes.data(), 2000, rows, 0x7fd5) == at / 2 * 2);
    bytes[at] = kept;
  }
}

TEST_CASE("the pool holds selected rows, poison everywhere else, and tells a change") {
  const char* line = GENERATE("decode b=2 s_q=1 h_q=2 s_kv=300 topk=64 page_size=53 page_stride_rows=55",
                              "decode b=1 s_q=2 h_q=2 s_kv=200 topk=64 kv_format=fp8_656 page_size=1",
                              "decode b=1 s_q=1 h_q=2 s_kv=1000 topk=64 page_size=128 topk_length=1");
  Variant variant;
  variant.poison = GENERATE(Poison::nan, Poison::huge, Poison::random, Poison::numbers);
  const Guard guard = GENERATE(Guard::canary, Guard::fault_before, Guard::fault_after);
  Device& device = host_device();
  StagedInputs staged(parse_line(line), variant, guard);
  staged.stage(device);
  const Inputs& in = staged.in;
  const smla_buffers b = staged.buffers();
  const auto* kv = static_cast<const uint8_t*>(b.kv);
  std::vector<uint8_t> expected(static_cast<size_t>(in.row_bytes));
  auto row_is = [&](const uint8_t* at) { return std::memcmp(at, expected.data(), expected.size()) == 0; };
  int64_t wrong = 0;
  for (int64_t slot = 0; slot < in.num_slots; ++slot) {
    if (std::binary_search(in.selected.begin(), in.selected.end(), slot)) kv_row(in, slot, expected.data());
    else poison_row(in, slot, expected.data());
    wrong += !row_is(kv + slot / in.c.page_size * in.page_stride_bytes + slot % in.c.page_size * in.row_bytes);
  }
  const int64_t rows_bytes = in.c.page_size * in.row_bytes;
  expected.resize(static_cast<size_t>(in.page_stride_bytes - rows_bytes));
  for (int64_t page = 0; page < in.num_pages; ++page) {
    poison_bytes(variant.poison, tail_salt(in, page), expected.data(), std::ssize(expected));
    wrong += !row_is(kv + page * in.page_stride_bytes + rows_bytes);
  }
  expected.resize(static_cast<size_t>(in.row_bytes));
  CHECK(wrong == 0);
  if (guard == Guard::canary) {
    poison_row(in, -1, expected.data());
    CHECK(row_is(kv - in.row_bytes));
    poison_row(in, in.num_slots, expected.data());
    CHECK(row_is(kv + in.num_pages * in.page_stride_bytes));
  } else {
    CHECK(readable(guard == Guard::fault_before ? kv - 1 : kv + (in.num_pages * in.page_stride_bytes + 255) / 256 * 256) == false);
  }
  std::vector<uint16_t> q(static_cast<size_t>(in.c.d_qk));
  q_row(in, in.tokens() - 1, 1, q.data());
  const smla_problem p = make_problem(in, 1);
  CHECK(std::memcmp(static_cast<const uint8_t*>(b.q) + tensor_bytes(p).q - 2 * in.c.d_qk, q.data(), q.size() * 2) == 0);
  CHECK(std::memcmp(b.indices, in.indices.data(), in.indices.size() * 4) == 0);

  REQUIRE(!staged.changed());
  const_cast<uint8_t*>(kv)[in.num_pages * in.page_stride_bytes - 1] ^= 1;
  CHECK_THAT(staged.changed().value(), ContainsSubstring("kv: byte " + std::to_string(in.num_pages * in.page_stride_bytes - 1)));
  const_cast<uint8_t*>(kv)[in.num_pages * in.page_stride_bytes - 1] ^= 1;
  REQUIRE(!staged.changed());
  const_cast<int32_t*>(b.seq_lens)[0] += 1;
  CHECK_THAT(staged.changed().value(), ContainsSubstring("seq_lens: byte 0 of"));
}

TEST_CASE("strides with gaps leave the rows where the problem says") {
  Variant variant;
  variant.pad_strides = true;
  StagedInputs staged(parse_line("decode b=2 s_q=3 h_q=2 s_kv=300 topk=64"), variant, Guard::canary);
  staged.stage(host_device());
  const smla_problem p = make_problem(staged.in, 1);
  const smla_buffers b = staged.buffers();
  for (int64_t t = 0; t < 6; ++t) {
    const auto* row = reinterpret_cast<const uint8_t*>(b.indices) + t / 3 * p.indices_stride_bytes[0] + t % 3 * p.indices_stride_bytes[1];
    CHECK(std::memcmp(row, &staged.in.indices[static_cast<size_t>(t * p.topk)], static_cast<size_t>(p.topk) * 4) == 0);
    std::vector<uint16_t> q(static_cast<size_t>(p.d_qk));
    q_row(staged.in, t, 1, q.data());
    CHECK(std::memcmp(static_cast<const uint8_t*>(b.q) + t / 3 * p.q_stride_bytes[0] + t % 3 * p.q_stride_bytes[1] + p.q_stride_bytes[2], q.data(),
                      q.size() * 2) == 0);
  }
}

TEST_CASE("the first write into watched memory is noted and goes through; released memory is writable and whole when it comes back") {
  Device& device = host_device();
  Block block = device.allocate("watched", 10000, Guard::canary);
  device.fill(block.data, block.bytes, 7);
  CHECK(!device.watch(block));  // nobody looks after faults yet: the caller has to compare
  watch_for_faults();
  REQUIRE(device.watch(block));
  CHECK(!device.first_written(block));
  volatile std::byte* bytes = block.data;
  bytes[9000] = bytes[9000];
  bytes[17] = std::byte{1};
  CHECK(device.first_written(block) == 9000);
  CHECK(block.data[17] == std::byte{1});
  const std::byte* const mapped = block.mapped;
  block = Block();
  Block again = device.allocate("again", 13000, Guard::fault_after);  // other canaries in as many pages
  CHECK(again.mapped == mapped);
  CHECK(!device.damaged(again));
  device.fill(again.data, again.bytes, 3);
  CHECK(!device.first_written(again));
  Block canaries = device.allocate("canaries", 100, Guard::canary);
  REQUIRE(device.watch(canaries));
  canaries.data[-1] = std::byte{0};
  CHECK(device.first_written(canaries) == -1);
}

TEST_CASE("far: offsets beyond 2^32 in little memory") {
  const Case c = parse_line("decode b=1 s_q=1 h_q=2 s_kv=4194304 topk=128 pattern=far");
  StagedInputs staged(c, {}, Guard::canary);
  staged.stage(host_device());
  const Inputs& in = staged.in;
  const auto* kv = static_cast<const uint8_t*>(staged.buffers().kv);
  REQUIRE(in.num_slots * in.row_bytes > (int64_t{1} << 32));
  std::vector<uint8_t> expected(static_cast<size_t>(in.row_bytes));
  int64_t wrong = 0;
  for (int64_t slot : in.selected) {
    kv_row(in, slot, expected.data());
    wrong +=
        std::memcmp(kv + slot / in.c.page_size * in.page_stride_bytes + slot % in.c.page_size * in.row_bytes, expected.data(), expected.size()) != 0;
  }
  CHECK(wrong == 0);
  CHECK(!staged.changed());
  const_cast<uint8_t*>(
      kv)[int64_t{in.selected.back()} / in.c.page_size * in.page_stride_bytes + in.selected.back() % in.c.page_size * in.row_bytes] ^= 1;
  CHECK(staged.changed());
}
