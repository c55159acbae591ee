// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/host_device.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <limits>
#include <numeric>

#include "cases/cost.h"
#include "harness/worker/blackbox.h"
#include "harness/worker/hash.h"
#include "harness/worker/parallel.h"
#include "harness/worker/released_memory.h"

namespace smla {

namespace {

constexpr int64_t kAlign = 256;
constexpr int64_t kReleased_bytes = int64_t{16} << 20;  // released memory that stays while memory of another size is got
constexpr int64_t kHashPiece = int64_t{1} << 20;        // worth a thread, whose start costs as much as reading some 200 KiB
const int64_t kPage = sysconf(_SC_PAGESIZE);

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

constexpr int64_t kLine = 64;

/// CLFLUSH, which every CPU has, waits for each line: it takes fifty times as long.
bool has_clflushopt() {
  unsigned a, b = 0, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
}
__attribute__((target("clflushopt"))) void evict_lines(const std::byte* first, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) _mm_clflushopt(const_cast<std::byte*>(first + i * kLine));
  _mm_mfence();
}

/// The canary bytes of offsets [begin, end).
void write_canary(std::byte* to, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end;) {
    const uint64_t word = canary_word(i >> 3);
    const int64_t skip = i & 7, n = std::min(8 - skip, end - i);
    std::memcpy(to, reinterpret_cast<const char*>(&word) + skip, static_cast<size_t>(n));
    i += n;
    to += n;
  }
}
/// The first offset in [begin, end) whose byte is not the canary's.
std::optional<int64_t> first_damage(const std::byte* data, int64_t begin, int64_t end) {
  std::array<std::byte, 4096> expected;
  for (int64_t n; begin < end; begin += n) {
    n = std::min(end - begin, std::ssize(expected));
    write_canary(expected.data(), begin, begin + n);
    if (std::memcmp(expected.data(), data + begin, static_cast<size_t>(n)) == 0) continue;
    return begin + (std::mismatch(expected.begin(), expected.begin() + n, data + begin).first - expected.begin());
  }
  return {};
}

bool holds_word(const std::byte* at, int bytes, uint16_t word) {
  for (int i = 0; i < bytes; i += 2)
    if (std::memcmp(at + i, &word, 2) != 0) return false;
  return true;
}

/// Runs `find(piece_begin, piece_end)` -> offset or -1 over [0, n) in parallel; the smallest found.
template <class F>
std::optional<int64_t> find_first(int64_t n, int64_t grain, F&& find) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> first{kNone};
  parallel_pieces(n, grain, [&](int64_t begin, int64_t end) {
    int64_t found = find(begin, end);
    if (found < 0) return;
    for (int64_t best = first.load(); found < best && !first.compare_exchange_weak(best, found);) {}
  });
  return first == kNone ? std::nullopt : std::optional<int64_t>(first);
}

class HostDevice final : public Device {
 public:
  void describe(smla_problem& problem) const override {
    problem.device_ordinal = problem.device_cc = problem.sm_count = 0;
    problem.smem_optin_bytes = 0;
    problem.l2_bytes = last_level_cache_bytes();
  }
  int64_t available_bytes() const override { return host_available_bytes() + released_.bytes(); }
  int64_t last_level_cache_bytes() const override {
    for (int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
      if (long bytes = sysconf(level); bytes > 0) return bytes;
    return int64_t{32} << 20;
  }
  void* stream() const override { return nullptr; }

  Block allocate(const std::string& name, int64_t bytes, Guard guard) override {
    // [no access | canary | tensor | canary | no access], the tensor at the first or last byte that its alignment allows where a read is to fault
    const int64_t before = guard == Guard::fault_before ? 0 : kPage, after = guard == Guard::fault_after ? 0 : kPage;
    const int64_t usable = before + round_up(round_up(bytes, kAlign) + after, kPage);
    const int64_t mapped_bytes = usable + 2 * kPage;
    Block block;
    if (std::byte* at = released_.take(mapped_bytes)) {
      block.device = this;
      block.mapped = at;
      block.mapped_bytes = mapped_bytes;
    } else {
      released_.give_back_beyond(kReleased_bytes);
      block = map(name, bytes, mapped_bytes);
      std::byte* begin = block.mapped + kPage;
      if ((usable >= kWorthAsking_bytes && usable > available_bytes()) || mprotect(begin, static_cast<size_t>(usable), PROT_READ | PROT_WRITE) != 0)
        throw OutOfMemory(fmt::format("{}: {} bytes", name, bytes), bytes);
      if (usable >= (int64_t{4} << 20)) madvise(begin, static_cast<size_t>(usable), MADV_HUGEPAGE);
    }
    std::byte* begin = block.mapped + kPage;
    block.name = name;
    block.bytes = bytes;
    block.data = guard == Guard::fault_after ? begin + usable - round_up(bytes, kAlign) : begin + before;
    block.canary_before_bytes = block.data - begin;
    block.canary_after_bytes = begin + usable - (block.data + bytes);
    write_canary(begin, -block.canary_before_bytes, 0);
    write_canary(block.data + bytes, bytes, bytes + block.canary_after_bytes);
    name_memory(named(name), block.data, bytes);
    return block;
  }
  Block reserve(const std::string& name, int64_t bytes) override {
    Block block = map(name, bytes, round_up(bytes, kPage) + 2 * kPage);
    block.name = name;
    block.bytes = bytes;
    block.data = block.mapped + kPage;
    name_memory(named(name), block.data, bytes);
    return block;
  }
  std::vector<Range> back(Block& block, std::vector<Range> ranges) override {
    released_.give_back_beyond(kReleased_bytes);
    const std::vector<Range> backed = in_whole_units(std::move(ranges), kPage, block.bytes);
    const int64_t need = std::accumulate(backed.begin(), backed.end(), int64_t{0}, [](int64_t sum, Range r) { return sum + r.end - r.begin; });
    bool enough = need <= available_bytes();
    for (Range r : backed) enough = enough && mprotect(block.data + r.begin, static_cast<size_t>(r.end - r.begin), PROT_READ | PROT_WRITE) == 0;
    if (!enough) throw OutOfMemory(fmt::format("{}: {} bytes in {} places", block.name, need, backed.size()), need);
    return backed;
  }
  void release(Block& block) override {
    forget_memory(block.data);
    unlock_memory(block.mapped + kPage);
    block.device = nullptr;
    if (is_whole(block)) released_.keep(block.mapped, block.mapped_bytes);
    else unmap(block.mapped, block.mapped_bytes);
  }
  bool watch(Block& block) override {
    // a reservation is writable in places only: what is locked would be writable everywhere afterwards
    return is_whole(block) && lock_memory(block.mapped + kPage, block.mapped_bytes - 2 * kPage);
  }
  std::optional<int64_t> first_written(const Block& block) const override {
    const auto* at = static_cast<const std::byte*>(first_write(block.mapped + kPage));
    return at ? std::optional<int64_t>(at - block.data) : std::nullopt;
  }
  std::optional<int64_t> damaged(const Block& block) override {
    if (const auto at = first_damage(block.data, -block.canary_before_bytes, 0)) return at;
    return first_damage(block.data, block.bytes, block.bytes + block.canary_after_bytes);
  }

  void upload(std::byte* to, const void* from, int64_t bytes) override { std::memcpy(to, from, static_cast<size_t>(bytes)); }
  void download(void* to, const std::byte* from, int64_t bytes) override { std::memcpy(to, from, static_cast<size_t>(bytes)); }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override { std::memcpy(to, from, static_cast<size_t>(bytes)); }
  void fill(std::byte* to, int64_t bytes, uint16_t word) override {
    parallel_pieces(bytes / 2, int64_t{1} << 20, [&](int64_t begin, int64_t end) {
      auto* words = reinterpret_cast<uint16_t*>(to);
      std::fill(words + begin, words + end, word);
    });
  }
  void fill_random(std::byte* to, int64_t bytes, uint64_t seed) override {
    parallel_pieces((bytes + 7) / 8, int64_t{1} << 18, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        uint64_t word = mix64(mix64(seed) + static_cast<uint64_t>(i));
        std::memcpy(to + i * 8, &word, static_cast<size_t>(std::min<int64_t>(8, bytes - i * 8)));
      }
    });
  }

  void write_pool(const Inputs& in, Block& block, int64_t lead_bytes, const std::vector<Range>& ranges) override {
    auto salted = [&](int64_t begin, int64_t end, uint64_t salt) {
      if (begin < end) poison_bytes(in.variant.poison, salt, reinterpret_cast<uint8_t*>(block.data + begin), end - begin);
    };
    auto poison = [&](int64_t begin, int64_t end) { salted(begin, end, static_cast<uint64_t>(begin)); };
    auto* first_page = reinterpret_cast<uint8_t*>(block.data + lead_bytes);
    auto row_at = [&](int64_t slot) { return first_page + slot / in.c.page_size * in.page_stride_bytes + slot % in.c.page_size * in.row_bytes; };
    const bool whole = ranges.size() == 1 && ranges[0].begin == 0 && ranges[0].end == block.bytes;
    if (!whole) {  // scattered pages of a reservation: poison them, then the rows
      parallel_pieces(std::ssize(ranges), 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) poison(ranges[static_cast<size_t>(i)].begin, ranges[static_cast<size_t>(i)].end);
      });
      parallel_pieces(std::ssize(in.selected), 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) kv_row(in, in.selected[static_cast<size_t>(i)], row_at(in.selected[static_cast<size_t>(i)]));
      });
      return;
    }
    parallel_pieces(in.num_pages, std::max<int64_t>(1, 256 / in.c.page_size), [&](int64_t begin, int64_t end) {
      auto next = std::lower_bound(in.selected.begin(), in.selected.end(), begin * in.c.page_size);
      for (int64_t page = begin; page < end; ++page) {
        for (int64_t slot = page * in.c.page_size; slot < (page + 1) * in.c.page_size; ++slot) {
          if (next != in.selected.end() && *next == slot) kv_row(in, slot, row_at(slot)), ++next;
          else poison_row(in, slot, row_at(slot));
        }
        int64_t page_begin = lead_bytes + page * in.page_stride_bytes;
        salted(page_begin + in.c.page_size * in.row_bytes, page_begin + in.page_stride_bytes, tail_salt(in, page));
      }
    });
    const int64_t pages_end = lead_bytes + in.num_pages * in.page_stride_bytes;
    poison(0, lead_bytes);
    poison(pages_end, block.bytes);
    // slot -1 and slot num_slots, as whole rows
    if (lead_bytes >= in.row_bytes) poison_row(in, -1, first_page - in.row_bytes);
    if (block.bytes - pages_end >= in.row_bytes) poison_row(in, in.num_slots, reinterpret_cast<uint8_t*>(block.data + pages_end));
  }
  void write_q(const Inputs& in, std::byte* to, const Rows& rows) override {
    parallel_pieces(rows.count(), 64, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        q_row(in, r / in.c.h_q, static_cast<int32_t>(r % in.c.h_q), reinterpret_cast<uint16_t*>(to + rows.offset(r)));
    });
  }

  uint64_t hash(const std::byte* data, const Rows& rows) override {
    std::atomic<uint64_t> sum{0};
    parallel_pieces(rows.count(), std::max<int64_t>(1, kHashPiece / std::max<int64_t>(1, rows.row_bytes)), [&](int64_t begin, int64_t end) {
      uint64_t part = 0;
      for (int64_t r = begin; r < end; ++r) part += hash_piece(data + rows.offset(r), rows.row_bytes, r);
      sum += part;
    });
    return sum;
  }
  uint64_t hash(const std::byte* data, const std::vector<Range>& ranges) override {
    std::atomic<uint64_t> sum{0};
    auto add = [&](Range range, int64_t index) { sum += hash_piece(data + range.begin, range.end - range.begin, index); };
    if (ranges.size() == 1) {
      const Range all = ranges[0];
      parallel_pieces(all.end - all.begin, kHashPiece, [&](int64_t begin, int64_t end) { add({all.begin + begin, all.begin + end}, begin); });
    } else {
      parallel_pieces(std::ssize(ranges), 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) add(ranges[static_cast<size_t>(i)], i);
      });
    }
    return sum;
  }
  std::optional<int64_t> first_difference(const std::byte* a, const std::byte* b, int64_t bytes) override {
    return find_first(bytes, kHashPiece, [&](int64_t begin, int64_t end) -> int64_t {
      auto [at, other] = std::mismatch(a + begin, a + end, b + begin);
      return at == a + end ? -1 : at - a;
    });
  }
  std::optional<int64_t> first_unwritten(const std::byte* data, const Rows& rows, int element_bytes, uint16_t word) override {
    const auto scan = [&]<class Element>(Element still) {
      return find_first(rows.count(), 1024, [&](int64_t begin, int64_t end) -> int64_t {
        for (int64_t r = begin; r < end; ++r) {
          const auto* row = reinterpret_cast<const Element*>(data + rows.offset(r));
          const int64_t n = rows.row_bytes / int64_t{sizeof(Element)};
          bool any = false;
          for (int64_t i = 0; i < n; ++i) any |= row[i] == still;  // no early end: vectors
          if (any) return reinterpret_cast<const std::byte*>(std::find(row, row + n, still)) - data;
        }
        return -1;
      });
    };
    return element_bytes == 2 ? scan(word) : scan(word * 0x10001u);
  }
  std::optional<int64_t> first_stray(const std::byte* data, int64_t bytes, const Rows& rows, uint16_t word) override {
    int64_t expected = 0;  // rows ascend in memory: walk the gaps between them
    for (int64_t r = 0; r <= rows.count(); ++r) {
      const int64_t begin = r < rows.count() ? rows.offset(r) : bytes;
      for (int64_t at = expected; at < begin; at += 2)
        if (!holds_word(data + at, 2, word)) return at;
      expected = begin + rows.row_bytes;
    }
    return {};
  }

  std::string synchronize() override { return {}; }
  double timed_us(const std::function<void()>& work) override {
    auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  bool evict(const std::byte* data, int64_t bytes) override {
    if (!has_clflushopt()) return false;
    const auto* first = data - reinterpret_cast<uintptr_t>(data) % kLine;
    parallel_pieces((data + bytes - first + kLine - 1) / kLine, int64_t{1} << 15,
                    [&](int64_t begin, int64_t end) { evict_lines(first + begin * kLine, end - begin); });
    return true;
  }
  void flush_cache(int64_t bytes) override {
    if (flush_.bytes < bytes) {
      flush_ = Block();
      flush_ = allocate("cache flush", round_up(bytes, 64), Guard::canary);
      fill(flush_.data, flush_.bytes, 1);  // else every page is the one zero page
    }
    std::atomic<uint64_t> sum{0};
    parallel_pieces(bytes / 64, int64_t{1} << 14, [&](int64_t begin, int64_t end) {
      uint64_t part = 0;
      for (int64_t i = begin; i < end; ++i) part += static_cast<uint64_t>(flush_.data[i * 64]);
      sum += part;
    });
    volatile uint64_t keep = sum;
    (void)keep;
  }
  /// Way 0: on all threads, which take a while to start; 1: on this one.
  void gather(const PoolRows& rows, int way, int threads) override {
    std::atomic<uint64_t> sum{0};
    parallel_pieces(
        rows.n, 128,
        [&](int64_t begin, int64_t end) {
          uint64_t part = 0;
          for (int64_t i = begin; i < end; ++i) {
            const std::byte* row =
                rows.kv + rows.slots[i] / rows.page_size * rows.page_stride_bytes + rows.slots[i] % rows.page_size * rows.row_bytes;
            for (int64_t at = 0; at < rows.row_bytes; at += 64) part += static_cast<uint64_t>(row[at]);
          }
          sum += part;
        },
        way == 0 ? threads : 1);
    volatile uint64_t keep = sum;
    (void)keep;
  }
  int gather_ways() const override { return 2; }

 private:
  Block map(const std::string& name, int64_t bytes, int64_t mapped_bytes) {
    Block block;
    void* mapped = mmap(nullptr, static_cast<size_t>(mapped_bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw OutOfMemory(fmt::format("{}: {} bytes", name, bytes), bytes);
    block.device = this;
    block.mapped = static_cast<std::byte*>(mapped);
    block.mapped_bytes = mapped_bytes;
    return block;
  }
  static void unmap(std::byte* at, int64_t bytes) { munmap(at, static_cast<size_t>(bytes)); }
  /// From allocate(), not from reserve().
  static bool is_whole(const Block& block) { return block.canary_before_bytes + block.canary_after_bytes > 0; }
  /// A name that outlives every block: the signal handler reads it.
  const char* named(const std::string& name) {
    for (const std::string& known : names_)
      if (known == name) return known.c_str();
    return names_.emplace_back(name).c_str();
  }
  std::deque<std::string> names_;
  ReleasedMemory released_{std::numeric_limits<int64_t>::max(), unmap};  // all of it, until memory of another size is got
  Block flush_;
};

}  // namespace

Device& host_device() {
  static HostDevice& device = *new HostDevice;  // never destroyed: blocks may outlive main
  return device;
}

int64_t host_available_bytes() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;)
    if (int64_t kib; word == "MemAvailable:" && meminfo >> kib) available = kib * 1024;
  rlimit limit_of_space;
  if (getrlimit(RLIMIT_AS, &limit_of_space) == 0 && limit_of_space.rlim_cur != RLIM_INFINITY) {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    available = std::min(available, std::max<int64_t>(0, static_cast<int64_t>(limit_of_space.rlim_cur) - pages * sysconf(_SC_PAGESIZE)));
  }
  // the control group's own limit, less what it holds and could not give back
  auto number_in = [](const char* path) {
    std::ifstream file(path);
    int64_t n;
    return file >> n ? std::optional(n) : std::nullopt;
  };
  auto limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) {
    int64_t cache = 0;
    std::ifstream stat("/sys/fs/cgroup/memory.stat");
    for (std::string word; stat >> word;)
      if (word == "inactive_file") stat >> cache;
    available = std::min(available, *limit - *used + cache);
  }
  return available;
}

std::string too_large(double need_bytes, std::string_view what) {
  if (need_bytes < static_cast<double>(kWorthAsking_bytes)) return {};
  const int64_t have = host_available_bytes();
  if (need_bytes <= static_cast<double>(have)) return {};
  return fmt::format("{} need {:.0f} bytes, {} are free", what, need_bytes, have);
}

std::string too_large(const Case& c) { return too_large(2 * inputs_bytes(c), "the case's lists and page table, here and in a worker,"); }

}  // namespace smla
