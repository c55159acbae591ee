// SPDX-License-Identifier: Apache-2.0
// Where a kernel's tensors live: guarded memory, and the few things the engine does with it. One implementation a kind of device (host_device.h).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cases/inputs.h"
#include "cases/values.h"
#include "harness/worker.h"
#include "harness/worker/pool_rows.h"
#include "kernels/api/smla_kernel.h"

namespace smla {

/// How much memory is free is not asked for less: the answer takes longer than most allocations.
inline constexpr int64_t kWorthAsking_bytes = int64_t{16} << 20;

/// There is not enough memory for `bytes`. Not a kernel's fault unless the workspace was asked for.
struct OutOfMemory : std::runtime_error {
  OutOfMemory(const std::string& what, int64_t n) : std::runtime_error(what), bytes(n) {}
  int64_t bytes;
};

/// The device failed while the harness itself was at work on it: most likely of what a kernel did before.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Equal rows of a tensor in memory, gaps between them: row (i, j, k) of row_bytes stands at data + i*stride[0] + j*stride[1] + k*stride[2].
struct Rows {
  int64_t n[3] = {1, 1, 1}, stride_bytes[3] = {0, 0, 0}, row_bytes = 0;
  int64_t count() const { return n[0] * n[1] * n[2]; }
  int64_t offset(int64_t row) const {
    return row / (n[1] * n[2]) * stride_bytes[0] + row / n[2] % n[1] * stride_bytes[1] + row % n[2] * stride_bytes[2];
  }
  /// From the first row's first byte to the last row's last.
  int64_t extent_bytes() const { return count() ? offset(count() - 1) + row_bytes : 0; }
};

/// Canary byte at an offset from the tensor's first byte: differs from place to place, so that a shifted copy shows. Eight are one word.
SMLA_HD inline uint64_t canary_word(int64_t word) { return mix64(static_cast<uint64_t>(word) ^ 0x63616e617279u); }
SMLA_HD inline std::byte canary(int64_t offset) { return static_cast<std::byte>(canary_word(offset >> 3) >> (8 * (offset & 7))); }

/// What a device says of itself beside a sample. 0 = unknown.
struct Conditions {
  double sm_clock_mhz = 0, mem_clock_mhz = 0, power_w = 0, temperature_c = 0;
  uint64_t throttle = 0;  // bits, see harness/cuda/nvml.h
};

class Device;
/// Memory of a device, freed with it. `data` is 256-byte aligned.
struct Block {
  Block() = default;
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept { return swap(other), *this; }
  ~Block();
  void swap(Block& other) noexcept;

  std::string name;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  Device* device = nullptr;
  // Of the device: everything mapped, and the canaries inside it. A reservation has no canaries.
  std::byte* mapped = nullptr;
  int64_t mapped_bytes = 0, canary_before_bytes = 0, canary_after_bytes = 0;
};

/// One stretch of a block: the parts of the pool that are backed by memory.
struct Range {
  int64_t begin = 0, end = 0;  // bytes
};

/// Every range widened to whole units inside [0, bytes rounded up): sorted and disjoint.
std::vector<Range> in_whole_units(std::vector<Range> ranges, int64_t unit, int64_t bytes);

/// What only a device with streams can do. Its streams are ordered with nothing but themselves.
class Streams {
 public:
  virtual ~Streams() = default;
  /// Beside Device::stream().
  virtual void* second() const = 0;
  /// Both streams wait at the gate until open_gate(), or until `limit_ms` are over, so that who waits for a stream meanwhile does not wait for ever.
  virtual void close_gate(double limit_ms) = 0;
  virtual void open_gate() = 0;
  /// Whether somebody was let through before open_gate().
  virtual bool gate_gave_up() const = 0;
  /// While the gate is closed: the offset of the first 16-bit word that is not `word`.
  virtual std::optional<int64_t> first_changed(const std::byte* data, int64_t bytes, uint16_t word) = 0;
};

/// Content functions are given memory of this device and run to their end before they return, unless said otherwise.
class Device {
 public:
  virtual ~Device() = default;
  /// Fills device_ordinal, device_cc, sm_count, smem_optin_bytes, l2_bytes.
  virtual void describe(smla_problem& problem) const = 0;
  virtual int64_t available_bytes() const = 0;
  virtual int64_t last_level_cache_bytes() const = 0;
  virtual void* stream() const = 0;  // what launch is given; NULL on the host
  virtual Streams* streams() { return nullptr; }

  // Memory. allocate() and back() throw OutOfMemory. Without canaries on a side, the tensor's end there is the end of what is mapped.
  virtual Block allocate(const std::string& name, int64_t bytes, Guard guard) = 0;
  /// Address space only: every access faults until back() gave a range memory. Ranges are widened to whole pages: the result, sorted and disjoint, is
  /// what is backed.
  virtual Block reserve(const std::string& name, int64_t bytes) = 0;
  virtual std::vector<Range> back(Block& block, std::vector<Range> ranges) = 0;
  virtual void release(Block& block) = 0;
  /// Offset from data of the first canary byte that changed.
  virtual std::optional<int64_t> damaged(const Block& block) = 0;
  /// From now on a write into the block, canaries included, is noted where it happens: first_written() has its offset from data. False: this device,
  /// or this block, has to be looked at byte by byte instead.
  virtual bool watch(Block&) { return false; }
  virtual std::optional<int64_t> first_written(const Block&) const { return {}; }

  // Content.
  virtual void upload(std::byte* to, const void* from, int64_t bytes) = 0;
  virtual void download(void* to, const std::byte* from, int64_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  /// Every 16-bit word becomes `word`; bytes is even.
  virtual void fill(std::byte* to, int64_t bytes, uint16_t word) = 0;
  virtual void fill_random(std::byte* to, int64_t bytes, uint64_t seed) = 0;
  /// Writes the pool's `ranges`, whose byte 0 is the first page's first byte `lead_bytes` into the block: selected rows, poison everywhere else.
  virtual void write_pool(const Inputs& in, Block& block, int64_t lead_bytes, const std::vector<Range>& ranges) = 0;
  virtual void write_q(const Inputs& in, std::byte* to, const Rows& rows) = 0;
  /// 64 bits of all rows' bytes in order, gaps left out: equal bytes, equal hash, whatever the strides.
  virtual uint64_t hash(const std::byte* data, const Rows& rows) = 0;
  virtual uint64_t hash(const std::byte* data, const std::vector<Range>& ranges) = 0;
  /// Offset of the first byte that differs, if any.
  virtual std::optional<int64_t> first_difference(const std::byte* a, const std::byte* b, int64_t bytes) = 0;
  /// Offset of the first element (2 or 4 bytes) inside the rows that still consists of `word`, if any.
  virtual std::optional<int64_t> first_unwritten(const std::byte* data, const Rows& rows, int element_bytes, uint16_t word) = 0;
  /// Offset of the first byte of `bytes` outside the rows that no longer belongs to `word`, if any.
  virtual std::optional<int64_t> first_stray(const std::byte* data, int64_t bytes, const Rows& rows, uint16_t word) = 0;
  // Of these several at a time, where each answer is a round trip.
  struct Content {
    const Block* block;
    std::vector<Range> ranges;
  };
  struct SeenBlock {
    std::optional<int64_t> damaged;
    uint64_t hash = 0;  // of the ranges
  };
  virtual std::vector<SeenBlock> look(const std::vector<Content>& contents) {
    std::vector<SeenBlock> seen;
    for (const Content& content : contents) seen.push_back({damaged(*content.block), hash(content.block->data, content.ranges)});
    return seen;
  }
  struct SeenRows {
    std::optional<int64_t> unwritten;
    uint64_t hash = 0;
  };
  virtual SeenRows look(const std::byte* data, const Rows& rows, int element_bytes, uint16_t word) {
    return {first_unwritten(data, rows, element_bytes, word), hash(data, rows)};
  }

  // Time.
  /// Empty, or the error of what was launched before: dead() says whether the device survived it.
  virtual std::string synchronize() = 0;
  /// Nothing more can be run on it by this process.
  virtual bool dead() const { return false; }
  /// Microseconds of what `work` launches, alone on the device.
  virtual double timed_us(const std::function<void()>& work) = 0;
  /// Takes these bytes out of every cache. False: this device cannot, and its cache has to be read over.
  virtual bool evict(const std::byte*, int64_t) { return false; }
  /// Reads (never writes: dirty lines would be written back inside the timed span) so many bytes that nobody else uses: of what was cached before,
  /// and is less than these, nothing is left, however it was loaded.
  virtual void flush_cache(int64_t bytes) = 0;
  /// What `work` launches, to be played again. Only what it puts on the stream is in it.
  struct Recording {
    virtual ~Recording() = default;
  };
  virtual bool can_record() const { return false; }
  /// Null, with the reason in `why`, where the work cannot be recorded or puts nothing on the stream.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work, std::string& why) { return why = "nothing can be recorded", nullptr; }
  // Enqueued, not waited for.
  virtual void play(Recording&) {}
  // What times are held against.
  virtual void launch_nothing() {}
  /// Loads each of these rows and does nothing with it, in one of several ways: which is the fastest depends on how many there are. `threads`: at
  /// most so many of a host.
  virtual void gather(const PoolRows& rows, int way, int threads) = 0;
  virtual int gather_ways() const = 0;
  virtual Conditions conditions() { return {}; }
};

}  // namespace smla
