// SPDX-License-Identifier: Apache-2.0
// Device memory for the engine: the same guards, poison, inputs and questions as host_device.cc, bit for bit the same inputs, made where they are
// used.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "cases/values.h"
#include "harness/cuda/cuda_device.h"
#include "harness/cuda/gather.cuh"
#include "harness/cuda/nvml.h"
#include "harness/cuda/probes.cuh"
#include "harness/worker/parallel.h"
#include "harness/worker/released_memory.h"

namespace smla {
namespace {

constexpr int64_t kAlign = 256, kCanary = 4096;
constexpr int kThreads = 256;

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
int grid_for(int64_t n) { return static_cast<int>(std::clamp<int64_t>((n + kThreads - 1) / kThreads, 1, 1 << 20)); }

/// The parts as one text. nvcc does not get through fmt's headers.
template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}
std::string text_of(cudaError_t error) { return joined(cudaGetErrorName(error), ": ", cudaGetErrorString(error)); }

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw DeviceError(joined(what, ": ", text_of(error)));
}
/// "GPU-774b78f6-fea8-...": what NVML calls a device.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += {"0123456789abcdef"[byte / 16], "0123456789abcdef"[byte % 16]};
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}
void must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw DeviceError(joined(what, ": CUresult ", static_cast<int>(result)));
}

// ---- Kernels. One idea each; grid-stride, so that any size fits any grid.

using probe::all_threads, probe::first_thread;

__device__ int64_t offset_of(const Rows& rows, int64_t row) {
  return row / (rows.n[1] * rows.n[2]) * rows.stride_bytes[0] + row / rows.n[2] % rows.n[1] * rows.stride_bytes[1] +
         row % rows.n[2] * rows.stride_bytes[2];
}

__global__ void write_canaries(std::byte* data, int64_t before, int64_t bytes, int64_t after) {
  for (int64_t i = first_thread(); i < before + after; i += all_threads()) {
    const int64_t at = i < before ? i - before : bytes + i - before;
    data[at] = canary(at);
  }
}
/// The smallest offset of a changed canary byte, biased by `before` so that it is not negative.
__global__ void check_canaries(const std::byte* data, int64_t before, int64_t bytes, int64_t after, unsigned long long* first) {
  for (int64_t i = first_thread(); i < before + after; i += all_threads()) {
    const int64_t at = i < before ? i - before : bytes + i - before;
    if (data[at] != canary(at)) atomicMin(first, static_cast<unsigned long long>(at + before));
  }
}

__global__ void fill_words(uint16_t* words, int64_t n, uint16_t word) {
  for (int64_t i = first_thread(); i < n; i += all_threads()) words[i] = word;
}
__global__ void fill_noise(std::byte* to, int64_t bytes, uint64_t seed) {
  for (int64_t i = first_thread() * 8; i < bytes; i += all_threads() * 8) {
    const uint64_t word = mix64(mix64(seed) + static_cast<uint64_t>(i / 8));
    for (int64_t b = 0; b < 8 && i + b < bytes; ++b) to[i + b] = static_cast<std::byte>(word >> (8 * b));
  }
}

/// poison_bytes over each stretch. One block a stretch; begins are 8-byte aligned, ends even.
struct Stretch {
  int64_t begin, end;
  uint64_t salt;
};
__global__ void poison_stretches(std::byte* data, const Stretch* stretches, Poison poison) {
  const Stretch s = stretches[blockIdx.x];
  for (int64_t i = int64_t{threadIdx.x} * 8; i < s.end - s.begin; i += int64_t{blockDim.x} * 8) {
    const uint64_t word = poison_word(poison, s.salt, i);
    if (i + 8 <= s.end - s.begin) *reinterpret_cast<uint64_t*>(data + s.begin + i) = word;
    else
      for (int64_t b = 0; i + b < s.end - s.begin; ++b) data[s.begin + i + b] = static_cast<std::byte>(word >> (8 * b));
  }
}

struct PoolLayout {
  int64_t lead_bytes, page_stride_bytes, row_bytes, num_slots;
  int32_t page_size;
  Poison poison;
  uint64_t poison_stream;
};
__device__ std::byte* row_of(const PoolLayout& pool, std::byte* data, int64_t slot) {
  return data + pool.lead_bytes + slot / pool.page_size * pool.page_stride_bytes + slot % pool.page_size * pool.row_bytes;
}
/// poison_row of every slot, one warp a slot; row_bytes is a multiple of 8.
__global__ void poison_rows(std::byte* data, PoolLayout pool) {
  const int lane = threadIdx.x % 32;
  for (int64_t slot = first_thread() / 32; slot < pool.num_slots; slot += all_threads() / 32) {
    std::byte* row = row_of(pool, data, slot);
    const uint64_t salt = draw_at(pool.poison_stream, static_cast<uint64_t>(slot));
    for (int64_t i = lane * 8; i < pool.row_bytes; i += 32 * 8) *reinterpret_cast<uint64_t*>(row + i) = poison_word(pool.poison, salt, i);
  }
}
/// kv_row of the selected slots, one warp a slot.
__global__ void write_rows(std::byte* data, PoolLayout pool, ValueSpec spec, const int32_t* slots, const KvSource* sources, int64_t n) {
  const int lane = threadIdx.x % 32;
  for (int64_t i = first_thread() / 32; i < n; i += all_threads() / 32) {
    std::byte* row = row_of(pool, data, slots[i]);
    const KvSource source = sources[i];
    const bool fp8 = spec.kv_format == KvFormat::fp8_656;
    const int first = fp8 ? kLatent : 0;
    auto* values = reinterpret_cast<uint16_t*>(row + (fp8 ? Fp8Row656::kRopeOff : 0));
    for (int c = first + lane; c < spec.d_qk; c += 32) values[c - first] = kv_value(spec, source.key, source.position, c);
    if (!fp8) continue;
    for (int c = lane; c < kLatent; c += 32) row[c] = static_cast<std::byte>(kv_code(spec, source.key, c));
    if (lane < Fp8Row656::kGroups) reinterpret_cast<float*>(row + Fp8Row656::kScaleOff)[lane] = kv_scale(spec, source.key, lane);
  }
}
__global__ void write_queries(std::byte* to, Rows rows, ValueSpec spec, const QSource* sources, int64_t n) {
  const int lane = threadIdx.x % 32;
  for (int64_t r = first_thread() / 32; r < n; r += all_threads() / 32) {
    auto* row = reinterpret_cast<uint16_t*>(to + offset_of(rows, r));
    const QSource source = sources[r];
    for (int c = lane; c < spec.d_qk; c += 32) row[c] = q_value(spec, source.row, source.needle_key, c);
  }
}

__device__ void add_words(unsigned long long& sum, const std::byte* at, int64_t bytes, uint64_t index) {
  uint64_t word = 0;
  if (bytes >= 8 && reinterpret_cast<uintptr_t>(at) % 8 == 0) word = *reinterpret_cast<const uint64_t*>(at);
  else
    for (int64_t b = 0; b < 8 && b < bytes; ++b) word |= static_cast<uint64_t>(at[b]) << (8 * b);
  sum += mix64(word ^ mix64(index + 0x9e3779b97f4a7c15u));
}
/// A sum of bijections of (word, index): a changed word always changes it, and the order of the threads does not.
__global__ void hash_rows(const std::byte* data, Rows rows, unsigned long long* total) {
  const int64_t words = (rows.row_bytes + 7) / 8, n = rows.n[0] * rows.n[1] * rows.n[2] * words;
  unsigned long long sum = 0;
  for (int64_t i = first_thread(); i < n; i += all_threads()) {
    const int64_t row = i / words, at = i % words * 8;
    add_words(sum, data + offset_of(rows, row) + at, rows.row_bytes - at, static_cast<uint64_t>(i));
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}
__global__ void hash_stretch(const std::byte* data, int64_t bytes, uint64_t salt, unsigned long long* total) {
  unsigned long long sum = 0;
  for (int64_t i = first_thread(); i < (bytes + 7) / 8; i += all_threads())
    add_words(sum, data + i * 8, bytes - i * 8, salt + static_cast<uint64_t>(i));
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

__global__ void find_difference(const std::byte* a, const std::byte* b, int64_t bytes, unsigned long long* first) {
  for (int64_t i = first_thread(); i < bytes; i += all_threads())
    if (a[i] != b[i]) atomicMin(first, static_cast<unsigned long long>(i));
}
template <class Element>
__global__ void find_element(const std::byte* data, Rows rows, Element still, unsigned long long* first) {
  const int64_t per_row = rows.row_bytes / int64_t{sizeof(Element)}, n = rows.n[0] * rows.n[1] * rows.n[2] * per_row;
  for (int64_t i = first_thread(); i < n; i += all_threads()) {
    const int64_t at = offset_of(rows, i / per_row) + i % per_row * int64_t{sizeof(Element)};
    if (*reinterpret_cast<const Element*>(data + at) == still) atomicMin(first, static_cast<unsigned long long>(at));
  }
}
/// Walks the gap before row r (rows ascend in memory), for r = count the stretch behind the last.
__global__ void find_stray(const std::byte* data, int64_t bytes, Rows rows, uint16_t word, unsigned long long* first) {
  const int64_t count = rows.n[0] * rows.n[1] * rows.n[2];
  for (int64_t r = first_thread(); r <= count; r += all_threads()) {
    const int64_t begin = r == 0 ? 0 : offset_of(rows, r - 1) + rows.row_bytes, end = r < count ? offset_of(rows, r) : bytes;
    for (int64_t at = begin; at < end; at += 2)
      if (*reinterpret_cast<const uint16_t*>(data + at) != word) {
        atomicMin(first, static_cast<unsigned long long>(at));
        break;
      }
  }
}

/// Waits until the gate's count of openings has come to `turn`, or gives up and says so.
struct GateFlags {
  unsigned opened, given_up;
};
__global__ void wait_at_gate(volatile GateFlags* gate, unsigned turn, unsigned long long limit_ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  while (gate->opened < turn) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - begin > limit_ns) {
      gate->given_up = turn;
      return;
    }
  }
}
__global__ void find_other_word(const uint16_t* words, int64_t n, uint16_t word, unsigned long long* first) {
  for (int64_t i = first_thread(); i < n; i += all_threads())
    if (words[i] != word) atomicMin(first, static_cast<unsigned long long>(i * 2));
}

// ---- Virtual memory, for guard pages and for pools that are address space: the driver's entries, found through the runtime.

template <class F>
F driver_entry(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  must(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name);
  if (found != cudaDriverEntryPointSuccess || !function) throw DeviceError(joined(name, ": the driver does not have it"));
  return reinterpret_cast<F>(function);
}

class VirtualMemory {
 public:
  explicit VirtualMemory(int ordinal) {
    property_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property_.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    access_ = {property_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t unit = 0;
    must(driver_entry<CUresult (*)(size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags)>("cuMemGetAllocationGranularity")(
             &unit, &property_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
         "cuMemGetAllocationGranularity");
    unit_ = static_cast<int64_t>(unit);
  }
  int64_t unit() const { return unit_; }
  CUdeviceptr reserve(int64_t bytes) {
    CUdeviceptr at = 0;
    must(reserve_(&at, static_cast<size_t>(bytes), 0, 0, 0), "cuMemAddressReserve");
    return at;
  }
  void map(CUdeviceptr at, int64_t bytes) {
    CUmemGenericAllocationHandle handle;
    if (create_(&handle, static_cast<size_t>(bytes), &property_, 0) != CUDA_SUCCESS)
      throw OutOfMemory(joined(bytes, " bytes of device memory"), bytes);
    const CUresult mapped = map_(at, static_cast<size_t>(bytes), 0, handle, 0);
    release_(handle);  // the mapping keeps it
    must(mapped, "cuMemMap");
    must(set_access_(at, static_cast<size_t>(bytes), &access_, 1), "cuMemSetAccess");
  }
  void unmap(CUdeviceptr at, int64_t bytes) { unmap_(at, static_cast<size_t>(bytes)); }
  void free(CUdeviceptr at, int64_t bytes) { free_(at, static_cast<size_t>(bytes)); }

 private:
  CUmemAllocationProp property_ = {};
  CUmemAccessDesc access_ = {};
  int64_t unit_ = 0;
  decltype(&cuMemAddressReserve) reserve_ = driver_entry<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemCreate) create_ = driver_entry<decltype(&cuMemCreate)>("cuMemCreate");
  decltype(&cuMemMap) map_ = driver_entry<decltype(&cuMemMap)>("cuMemMap");
  decltype(&cuMemSetAccess) set_access_ = driver_entry<decltype(&cuMemSetAccess)>("cuMemSetAccess");
  decltype(&cuMemRelease) release_ = driver_entry<decltype(&cuMemRelease)>("cuMemRelease");
  decltype(&cuMemUnmap) unmap_ = driver_entry<decltype(&cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemAddressFree) free_ = driver_entry<decltype(&cuMemAddressFree)>("cuMemAddressFree");
};

/// Scratch of the harness's own on the device, freed with it.
template <class T>
class Scratch {
 public:
  explicit Scratch(size_t n) { must(cudaMalloc(&at_, std::max<size_t>(1, n) * sizeof(T)), "cudaMalloc"); }
  Scratch(const std::vector<T>& from, cudaStream_t stream) : Scratch(from.size()) {
    must(cudaMemcpyAsync(at_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  }
  ~Scratch() { cudaFree(at_); }
  Scratch(const Scratch&) = delete;
  T* get() const { return at_; }

 private:
  T* at_ = nullptr;
};

/// A second stream, and a gate before both.
class CudaStreams final : public Streams {
 public:
  explicit CudaStreams(cudaStream_t first) : first_(first) {
    must(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaStreamCreateWithFlags(&looker_, cudaStreamNonBlocking), "cudaStreamCreate");
    void* flags = nullptr;
    must(cudaHostAlloc(&flags, sizeof(GateFlags), cudaHostAllocMapped), "cudaHostAlloc");
    gate_ = new (flags) GateFlags{};
    must(cudaMalloc(&found_, sizeof *found_), "cudaMalloc");
    first_changed(reinterpret_cast<const std::byte*>(found_), 0, 0);  // loaded now: loading may wait for a device that a gate holds up
  }
  void* second() const override { return second_; }

  void close_gate(double limit_ms) override {
    ++turn_;
    for (cudaStream_t stream : {first_, second_}) wait_at_gate<<<1, 1, 0, stream>>>(gate_, turn_, static_cast<unsigned long long>(limit_ms * 1e6));
    must(cudaGetLastError(), "closing the gate");
  }
  void open_gate() override { gate_->opened = turn_; }
  bool gate_gave_up() const override { return gate_->given_up == turn_; }
  std::optional<int64_t> first_changed(const std::byte* data, int64_t bytes, uint16_t word) override {
    unsigned long long first = ~0ull;
    must(cudaMemcpyAsync(found_, &first, sizeof first, cudaMemcpyHostToDevice, looker_), "cudaMemcpyAsync");
    find_other_word<<<grid_for(bytes / 2), kThreads, 0, looker_>>>(reinterpret_cast<const uint16_t*>(data), bytes / 2, word, found_);
    must(cudaGetLastError(), "looking at device memory");
    must(cudaMemcpyAsync(&first, found_, sizeof first, cudaMemcpyDeviceToHost, looker_), "cudaMemcpyAsync");
    must(cudaStreamSynchronize(looker_), "looking at device memory");
    return first == ~0ull ? std::nullopt : std::optional(static_cast<int64_t>(first));
  }

 private:
  cudaStream_t first_, second_ = nullptr, looker_ = nullptr;
  volatile GateFlags* gate_ = nullptr;  // host memory that the device sees
  unsigned turn_ = 0;
  unsigned long long* found_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {
    must(cudaSetDevice(ordinal), "cudaSetDevice");
    must(cudaGetDeviceProperties(&properties_, ordinal), "cudaGetDeviceProperties");
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaEventCreate(&begin_), "cudaEventCreate");
    must(cudaEventCreate(&end_), "cudaEventCreate");
    must(cudaMalloc(&answer_, kAnswers * sizeof *answer_), "cudaMalloc");
    must(cudaMallocHost(&answer_here_, kAnswers * sizeof *answer_here_), "cudaMallocHost");
    memory_ = std::make_unique<VirtualMemory>(ordinal);
  }

  void describe(smla_problem& problem) const override {
    problem.device_ordinal = ordinal_;
    problem.device_cc = properties_.major * 10 + properties_.minor;
    problem.sm_count = properties_.multiProcessorCount;
    problem.smem_optin_bytes = static_cast<int64_t>(properties_.sharedMemPerBlockOptin);
    problem.l2_bytes = properties_.l2CacheSize;
  }
  int64_t available_bytes() const override {
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) + released_.bytes() : 0;
  }
  int64_t last_level_cache_bytes() const override { return properties_.l2CacheSize; }
  void* stream() const override { return stream_; }
  Streams* streams() override {
    if (!streams_) streams_ = std::make_unique<CudaStreams>(stream_);
    return streams_.get();
  }

  Block allocate(const std::string& name, int64_t bytes, Guard guard) override {
    Block block;
    block.name = name;
    block.bytes = bytes;
    const int64_t room = round_up(bytes, kAlign);
    if (guard == Guard::canary) {
      block.mapped_bytes = kCanary + room + kCanary;
      block.mapped = take(block.mapped_bytes);
      if (!block.mapped) throw OutOfMemory(joined(name, ": ", bytes, " bytes"), bytes);
      block.data = block.mapped + kCanary;
      block.canary_before_bytes = kCanary;
      block.canary_after_bytes = block.mapped_bytes - kCanary - bytes;
    } else {  // [nothing | tensor | nothing]: an access before the first or behind the last byte faults
      const int64_t unit = memory_->unit(), usable = round_up(room, unit);
      block.mapped_bytes = usable + 2 * unit;
      const CUdeviceptr at = memory_->reserve(block.mapped_bytes);
      memory_->map(at + static_cast<CUdeviceptr>(unit), usable);
      block.mapped = reinterpret_cast<std::byte*>(at);
      mappings_[block.mapped].push_back(Range{unit, unit + usable});
      const int64_t slack = usable - room;
      block.data = block.mapped + unit + (guard == Guard::fault_after ? slack : 0);
      block.canary_before_bytes = guard == Guard::fault_after ? slack : 0;
      block.canary_after_bytes = guard == Guard::fault_after ? room - bytes : usable - bytes;
    }
    block.device = this;
    write_canaries<<<grid_for(2 * kCanary), kThreads, 0, stream_>>>(block.data, block.canary_before_bytes, bytes, block.canary_after_bytes);
    finish("writing canaries");
    return block;
  }
  Block reserve(const std::string& name, int64_t bytes) override {
    Block block;
    block.name = name;
    block.bytes = bytes;
    block.mapped_bytes = round_up(bytes, memory_->unit()) + 2 * memory_->unit();
    block.mapped = reinterpret_cast<std::byte*>(memory_->reserve(block.mapped_bytes));
    block.data = block.mapped + memory_->unit();
    block.device = this;
    mappings_[block.mapped];
    return block;
  }
  std::vector<Range> back(Block& block, std::vector<Range> ranges) override {
    const int64_t unit = memory_->unit();
    const std::vector<Range> backed = in_whole_units(std::move(ranges), unit, block.bytes);
    for (Range r : backed) {
      memory_->map(reinterpret_cast<CUdeviceptr>(block.data + r.begin), r.end - r.begin);
      mappings_[block.mapped].push_back(Range{unit + r.begin, unit + r.end});
    }
    return backed;
  }
  void release(Block& block) override {
    cudaStreamSynchronize(stream_);
    if (const auto found = mappings_.find(block.mapped); found != mappings_.end()) {
      const auto at = reinterpret_cast<CUdeviceptr>(block.mapped);
      for (Range r : found->second) memory_->unmap(at + static_cast<CUdeviceptr>(r.begin), r.end - r.begin);
      memory_->free(at, block.mapped_bytes);
      mappings_.erase(found);
    } else {
      released_.keep(block.mapped, block.mapped_bytes);
    }
    block.device = nullptr;
  }
  std::optional<int64_t> damaged(const Block& block) override {
    return damage(block, ask(1, 0, [&](Answer* first, Answer*) { start_check(block, first); })[0]);
  }

  void upload(std::byte* to, const void* from, int64_t bytes) override {
    must(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    finish("upload");
  }
  void download(void* to, const std::byte* from, int64_t bytes) override {
    must(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    finish("download");
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    must(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
    finish("copy");
  }
  void fill(std::byte* to, int64_t bytes, uint16_t word) override {
    if (bytes == 0) return;
    fill_words<<<grid_for(bytes / 2), kThreads, 0, stream_>>>(reinterpret_cast<uint16_t*>(to), bytes / 2, word);
    finish("fill");
  }
  void fill_random(std::byte* to, int64_t bytes, uint64_t seed) override {
    if (bytes == 0) return;
    fill_noise<<<grid_for(bytes / 8 + 1), kThreads, 0, stream_>>>(to, bytes, seed);
    finish("fill_random");
  }

  void write_pool(const Inputs& in, Block& block, int64_t lead_bytes, const std::vector<Range>& ranges) override {
    const PoolLayout pool{
        lead_bytes, in.page_stride_bytes, in.row_bytes, in.num_slots, in.c.page_size, in.variant.poison, smla::stream(in.c.seed, Draw::poison)};
    const bool whole = ranges.size() == 1 && ranges[0].begin == 0 && ranges[0].end == block.bytes;
    std::vector<Stretch> stretches;
    const auto poison = [&](int64_t begin, int64_t end, uint64_t salt) {
      if (begin < end) stretches.push_back({begin, end, salt});
    };
    if (!whole) {
      for (Range r : ranges) poison(r.begin, r.end, static_cast<uint64_t>(r.begin));
    } else {
      const int64_t pages_end = lead_bytes + in.num_pages * in.page_stride_bytes, tail = in.page_stride_bytes - in.c.page_size * in.row_bytes;
      for (int64_t page = 0; tail > 0 && page < in.num_pages; ++page) {
        const int64_t begin = lead_bytes + page * in.page_stride_bytes + in.c.page_size * in.row_bytes;
        poison(begin, begin + tail, tail_salt(in, page));
      }
      poison(0, lead_bytes, 0);
      poison(pages_end, block.bytes, static_cast<uint64_t>(pages_end));
      poison_rows<<<grid_for(in.num_slots * 32), kThreads, 0, stream_>>>(block.data, pool);
    }
    poison_all(block.data, stretches, in.variant.poison);
    stretches.clear();
    if (whole && lead_bytes >= in.row_bytes) {  // slot -1 and slot num_slots, as whole rows
      const int64_t pages_end = lead_bytes + in.num_pages * in.page_stride_bytes;
      poison(lead_bytes - in.row_bytes, lead_bytes, poison_salt(in, -1));
      if (block.bytes - pages_end >= in.row_bytes) poison(pages_end, pages_end + in.row_bytes, poison_salt(in, in.num_slots));
      poison_all(block.data, stretches, in.variant.poison);
    }
    std::vector<KvSource> sources(in.selected.size());
    parallel_pieces(std::ssize(in.selected), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sources[static_cast<size_t>(i)] = kv_source(in, in.selected[static_cast<size_t>(i)]);
    });
    const Scratch slots(in.selected, stream_);
    const Scratch sources_there(sources, stream_);
    write_rows<<<grid_for(std::ssize(sources) * 32), kThreads, 0, stream_>>>(block.data, pool, in.values, slots.get(), sources_there.get(),
                                                                             std::ssize(sources));
    finish("write_pool");
  }
  void write_q(const Inputs& in, std::byte* to, const Rows& rows) override {
    std::vector<QSource> sources(static_cast<size_t>(rows.count()));
    for (int64_t r = 0; r < rows.count(); ++r) sources[static_cast<size_t>(r)] = q_source(in, r / in.c.h_q, static_cast<int32_t>(r % in.c.h_q));
    const Scratch there(sources, stream_);
    write_queries<<<grid_for(rows.count() * 32), kThreads, 0, stream_>>>(to, rows, in.values, there.get(), rows.count());
    finish("write_q");
  }

  uint64_t hash(const std::byte* data, const Rows& rows) override {
    return ask(0, 1, [&](Answer*, Answer* sum) { start_hash(data, rows, sum); })[0];
  }
  uint64_t hash(const std::byte* data, const std::vector<Range>& ranges) override {
    return ask(0, 1, [&](Answer*, Answer* sum) { start_hash(data, ranges, sum); })[0];
  }
  std::optional<int64_t> first_difference(const std::byte* a, const std::byte* b, int64_t bytes) override {
    return find([&](Answer* first) { find_difference<<<grid_for(bytes), kThreads, 0, stream_>>>(a, b, bytes, first); });
  }
  std::optional<int64_t> first_unwritten(const std::byte* data, const Rows& rows, int element_bytes, uint16_t word) override {
    return find([&](Answer* first) { start_find_element(data, rows, element_bytes, word, first); });
  }
  std::optional<int64_t> first_stray(const std::byte* data, int64_t bytes, const Rows& rows, uint16_t word) override {
    return find([&](Answer* first) { find_stray<<<grid_for(rows.count() + 1), kThreads, 0, stream_>>>(data, bytes, rows, word, first); });
  }
  std::vector<SeenBlock> look(const std::vector<Content>& contents) override {
    const size_t n = contents.size();
    const Answer* answers = ask(n, n, [&](Answer* firsts, Answer* sums) {
      for (size_t i = 0; i < n; ++i) {
        start_check(*contents[i].block, firsts + i);
        start_hash(contents[i].block->data, contents[i].ranges, sums + i);
      }
    });
    std::vector<SeenBlock> seen;
    for (size_t i = 0; i < n; ++i) seen.push_back({damage(*contents[i].block, answers[i]), answers[n + i]});
    return seen;
  }
  SeenRows look(const std::byte* data, const Rows& rows, int element_bytes, uint16_t word) override {
    const Answer* answers = ask(1, 1, [&](Answer* first, Answer* sum) {
      start_find_element(data, rows, element_bytes, word, first);
      start_hash(data, rows, sum);
    });
    return {offset(answers[0]), answers[1]};
  }

  std::string synchronize() override {
    cudaError_t error = cudaGetLastError();  // of the launch itself
    const bool rejected = error != cudaSuccess;
    if (const cudaError_t later = cudaDeviceSynchronize(); later != cudaSuccess) error = later, dead_ = true;
    cudaGetLastError();
    if (error == cudaSuccess) return {};
    if (!dead_ && cudaMemsetAsync(answer_, 0, sizeof *answer_, stream_) != cudaSuccess) dead_ = true;
    return (rejected && !dead_ ? "launch rejected, " : "") + text_of(error);
  }
  bool dead() const override { return dead_; }
  double timed_us(const std::function<void()>& work) override {
    double us = 0;
    static_cast<void>(probe::timed_us(stream_, begin_, end_, work, us));  // where it fails synchronize() says why
    return us;
  }
  void flush_cache(int64_t bytes) override {
    if (flush_.bytes < bytes) {
      flush_ = Block();
      flush_ = allocate("cache flush", round_up(bytes, 4096), Guard::canary);
      fill_random(flush_.data, flush_.bytes, 1);
    }
    probe::launch_clear_l2(flush_.data, flush_.bytes, reinterpret_cast<uint32_t*>(answer_), properties_, stream_);
  }

  bool can_record() const override { return true; }
  std::unique_ptr<Recording> record(const std::function<void()>& work, std::string& why) override {
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    cudaGraph_t captured = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream_, &captured);
      if (captured) cudaGraphDestroy(captured);
      cudaGetLastError();
      throw;
    }
    const cudaError_t ended = cudaStreamEndCapture(stream_, &captured);
    cudaGetLastError();
    const std::unique_ptr<CUgraph_st, cudaError_t (*)(cudaGraph_t)> graph(captured, cudaGraphDestroy);
    if (ended != cudaSuccess) return why = "it cannot be captured in a graph: " + text_of(ended), nullptr;
    size_t nodes = 0;
    must(cudaGraphGetNodes(graph.get(), nullptr, &nodes), "cudaGraphGetNodes");
    if (nodes == 0) return why = "it launches nothing on the stream that it was given", nullptr;
    auto recording = std::make_unique<Graph>();
    if (const cudaError_t made = cudaGraphInstantiate(&recording->exec, graph.get(), 0); made != cudaSuccess)
      return cudaGetLastError(), why = "its graph cannot be instantiated: " + text_of(made), nullptr;
    must(cudaGraphUpload(recording->exec, stream_), "cudaGraphUpload");
    return recording;
  }
  void play(Recording& recording) override { must(cudaGraphLaunch(static_cast<Graph&>(recording).exec, stream_), "cudaGraphLaunch"); }
  void launch_nothing() override { probe::nothing<<<1, 1, 0, stream_>>>(); }
  void gather(const PoolRows& rows, int way, int) override {
    must(probe::launch_gather(rows, way, properties_, reinterpret_cast<uint32_t*>(answer_), stream_), "gather");
  }
  int gather_ways() const override { return probe::gather_ways(properties_); }
  Conditions conditions() override {
    using std::chrono::steady_clock;
    constexpr auto kFresh = std::chrono::milliseconds(5);  // asking takes a while, and changes are slower
    const auto now = steady_clock::now();
    if (asked_ && now - *asked_ < kFresh) return conditions_;
    asked_ = now;
    if (!nvml_) nvml_ = std::make_unique<Nvml>(uuid_text(properties_.uuid));
    conditions_ = {static_cast<double>(nvml_->sm_clock_mhz().value_or(0)), static_cast<double>(nvml_->mem_clock_mhz().value_or(0)),
                   nvml_->power_w().value_or(0), nvml_->temperature_c().value_or(0), nvml_->throttle_reasons().value_or(0)};
    return conditions_;
  }

 private:
  struct Graph final : Recording {
    cudaGraphExec_t exec = nullptr;
    ~Graph() override {
      if (exec) cudaGraphExecDestroy(exec);
    }
  };
  /// Null: there is not so much.
  std::byte* take(int64_t bytes) {
    if (std::byte* at = released_.take(bytes)) return at;
    void* at = nullptr;
    cudaError_t error = cudaMalloc(&at, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation && released_.bytes() > 0) {
      cudaGetLastError();
      released_.give_back_all();
      error = cudaMalloc(&at, static_cast<size_t>(bytes));
    }
    if (error == cudaErrorMemoryAllocation) return cudaGetLastError(), nullptr;
    must(error, "cudaMalloc");
    return static_cast<std::byte*>(at);
  }
  void finish(const char* what) {
    must(cudaGetLastError(), what);
    if (const cudaError_t error = cudaStreamSynchronize(stream_); error != cudaSuccess) dead_ = true, must(error, what);
  }
  using Answer = unsigned long long;
  static constexpr size_t kAnswers = 64;
  /// What kernels that `work(firsts, sums)` launches find: `firsts` offsets, kNothing where there is none, then `sums` sums.
  template <class F>
  const Answer* ask(size_t firsts, size_t sums, F&& work) {
    if (firsts + sums > kAnswers) throw DeviceError("too many questions at a time");
    must(cudaMemsetAsync(answer_, 0xff, firsts * sizeof(Answer), stream_), "cudaMemsetAsync");
    must(cudaMemsetAsync(answer_ + firsts, 0, sums * sizeof(Answer), stream_), "cudaMemsetAsync");
    work(answer_, answer_ + firsts);
    must(cudaMemcpyAsync(answer_here_, answer_, (firsts + sums) * sizeof(Answer), cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    finish("looking at device memory");
    return answer_here_;
  }
  static constexpr Answer kNothing = ~Answer{0};
  static std::optional<int64_t> offset(Answer first) { return first == kNothing ? std::nullopt : std::optional(static_cast<int64_t>(first)); }
  template <class F>
  std::optional<int64_t> find(F&& work) {
    return offset(ask(1, 0, [&](Answer* first, Answer*) { work(first); })[0]);
  }
  // Started, not waited for.
  void start_check(const Block& block, Answer* first) {
    check_canaries<<<grid_for(2 * kCanary), kThreads, 0, stream_>>>(block.data, block.canary_before_bytes, block.bytes, block.canary_after_bytes,
                                                                    first);
  }
  static std::optional<int64_t> damage(const Block& block, Answer first) {
    return first == kNothing ? std::nullopt : std::optional(static_cast<int64_t>(first) - block.canary_before_bytes);
  }
  void start_hash(const std::byte* data, const Rows& rows, Answer* sum) {
    hash_rows<<<grid_for(rows.count() * ((rows.row_bytes + 7) / 8)), kThreads, 0, stream_>>>(data, rows, sum);
  }
  void start_hash(const std::byte* data, const std::vector<Range>& ranges, Answer* sum) {
    uint64_t salt = 0;
    for (Range r : ranges) {
      hash_stretch<<<grid_for((r.end - r.begin) / 8 + 1), kThreads, 0, stream_>>>(data + r.begin, r.end - r.begin, salt, sum);
      salt += static_cast<uint64_t>(r.end - r.begin);
    }
  }
  void start_find_element(const std::byte* data, const Rows& rows, int element_bytes, uint16_t word, Answer* first) {
    const int grid = grid_for(rows.count() * rows.row_bytes / element_bytes);
    if (element_bytes == 2) find_element<uint16_t><<<grid, kThreads, 0, stream_>>>(data, rows, word, first);
    else find_element<uint32_t><<<grid, kThreads, 0, stream_>>>(data, rows, word * 0x10001u, first);
  }
  void poison_all(std::byte* data, const std::vector<Stretch>& stretches, Poison poison) {
    if (stretches.empty()) return;
    const Scratch there(stretches, stream_);
    poison_stretches<<<static_cast<unsigned>(stretches.size()), kThreads, 0, stream_>>>(data, there.get(), poison);
    finish("poisoning");
  }

  int ordinal_;
  bool dead_ = false;
  cudaDeviceProp properties_ = {};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  Answer *answer_ = nullptr, *answer_here_ = nullptr;
  std::unique_ptr<VirtualMemory> memory_;
  std::unique_ptr<CudaStreams> streams_;
  static void free(std::byte* at, int64_t) { cudaFree(at); }
  ReleasedMemory released_{int64_t{1} << 30, free};
  std::map<std::byte*, std::vector<Range>> mappings_;  // of blocks made of virtual memory: what is mapped, from block.mapped on
  Block flush_;
  std::unique_ptr<Nvml> nvml_;
  std::optional<std::chrono::steady_clock::time_point> asked_;
  Conditions conditions_;
};

std::string version_text(int version) { return joined(version / 1000, ".", version % 1000 / 10); }

/// Empty if a GPU of this ordinal can be used.
std::string why_not(int ordinal) {
  int driver = 0, runtime = 0, count = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return "no CUDA driver is installed here";
  if (driver / 1000 < runtime / 1000)
    return joined("the driver speaks CUDA ", version_text(driver), ", this program was built for ", version_text(runtime),
                  ": install driver R580 or newer");
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cudaGetLastError();
    return text_of(error);
  }
  if (ordinal < 0 || ordinal >= count) return joined("there is no GPU ", ordinal, ": ", count, " are visible");
  return {};
}

}  // namespace

Device* open_cuda_device(int ordinal, std::string& why) {
  static std::map<int, Device*> open;  // never closed: blocks may outlive main
  if (const auto found = open.find(ordinal); found != open.end()) return found->second;
  why = why_not(ordinal);
  if (!why.empty()) return nullptr;
  try {
    return open[ordinal] = new CudaDevice(ordinal);
  } catch (const std::exception& error) {
    open.erase(ordinal);
    why = error.what();
    return nullptr;
  }
}

bool describe_gpu(int ordinal, GpuInfo& info, std::string& why) {
  why = why_not(ordinal);
  if (!why.empty()) return false;
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, ordinal); error != cudaSuccess) return why = text_of(error), false;
  info.name = p.name;
  info.cc = p.major * 10 + p.minor;
  info.sm_count = p.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  info.l2_bytes = p.l2CacheSize;
  info.smem_optin_bytes = static_cast<int64_t>(p.sharedMemPerBlockOptin);
  info.uuid = uuid_text(p.uuid);
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  info.cuda_version = version_text(runtime);
  const Nvml nvml(info.uuid);
  info.driver_version = nvml.driver_version().value_or("");
  info.power_limit_w = nvml.power_limit_w().value_or(0);
  if (const auto ecc = nvml.ecc()) info.ecc = *ecc ? "on" : "off";
  return true;
}

}  // namespace smla
