// SPDX-License-Identifier: Apache-2.0
// `time`: kernels beside the floors, all measured in one run. Cold: median of single calls, each behind a read of 256 MB (L2 flush), inputs rotating
// over sets that L2 cannot hold; one event pair around the whole operation. Graph: one call a set in a CUDA graph, replayed; time / calls.
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "cases/kv_format.h"
#include "kernels/bringup/device.h"
#include "kernels/common/combine.h"
#include "kernels/common/job.h"
#include "kernels/door.h"
#include "kernels/registry.h"
#include "kernels/sparse_mma/kernel.h"

namespace smla::bringup {
namespace {

constexpr int kPages = 110592, kPageSize = 64;

__device__ uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
__device__ float2 normal2(uint64_t key) {
  const uint64_t r = mix(key);
  const float u = ((r >> 40) + 1) * (1.f / 16777217.f), v = (r & 0xffffff) * (1.f / 16777216.f), radius = sqrtf(-2.f * __logf(u));
  float s, c;
  __sincosf(6.2831853f * v, &s, &c);
  return make_float2(radius * s, radius * c);
}
__global__ void fill_normal(uint32_t* to, size_t pairs, uint64_t seed, bool fp16) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < pairs; i += size_t{gridDim.x} * blockDim.x) {
    const float2 v = normal2(seed << 40 ^ i);
    const __half2 h = __floats2half2_rn(v.x, v.y);
    to[i] = fp16 ? *reinterpret_cast<const uint32_t*>(&h) : (__float_as_uint(v.x) >> 16 | (__float_as_uint(v.y) & 0xffff0000u));
  }
}
/// Rows of fp8_656: codes of any finite value, scales that are no powers of two.
__global__ void fill_fp8(uint8_t* to, size_t rows, uint64_t seed) {
  const size_t warp = (blockIdx.x * size_t{blockDim.x} + threadIdx.x) / 32, warps = size_t{gridDim.x} * blockDim.x / 32;
  const int lane = threadIdx.x & 31;
  for (size_t row = warp; row < rows; row += warps) {
    uint32_t* words = reinterpret_cast<uint32_t*>(to + row * 656);
    for (int i = 0; i < 4; ++i) {
      uint32_t code = static_cast<uint32_t>(mix(seed << 40 ^ (row * 128 + i * 32 + lane)));
      words[i * 32 + lane] = code & 0xb7b7b7b7u;  // magnitudes up to 30: exponent field at most 6
    }
    if (lane < 4) reinterpret_cast<float*>(words)[128 + lane] = 0.01f + 0.02f * static_cast<float>(mix(row * 4 + lane) & 0xffff) / 65536.f;
    const float2 v = normal2(seed << 41 ^ (row * 32 + lane));
    words[132 + lane] = __float_as_uint(v.x) >> 16 | (__float_as_uint(v.y) & 0xffff0000u);
  }
}

/// The row-gather floor: kRows rows of kChunks x 16 bytes in flight a warp, whole-warp 16-byte loads.
template <int kChunks, int kRows>
__global__ void gather(const uint8_t* kv, const int* indices, int n, unsigned* sink) {
  const int lane = threadIdx.x & 31, first = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32) * kRows;
  constexpr int kLoads = (kChunks + 31) / 32;
  if (first >= n) return;
  uint4 v[kRows][kLoads] = {};
  int slot[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) slot[r] = first + r < n ? __ldg(indices + first + r) : -1;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kLoads; ++c)
      if (slot[r] >= 0 && c * 32 + lane < kChunks)
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v[r][c].x), "=r"(v[r][c].y), "=r"(v[r][c].z), "=r"(v[r][c].w)
                     : "l"(kv + size_t(slot[r]) * (kChunks * 16) + (c * 32 + lane) * 16));
  unsigned x = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kLoads; ++c) x ^= v[r][c].x ^ v[r][c].y ^ v[r][c].z ^ v[r][c].w;
  if (x == 0x12345677u) *sink = x;
}
__global__ void read_all(const uint4* p, size_t n, unsigned* sink) {
  unsigned x = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    const uint4 v = p[i];
    x ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (x == 0x12345677u) *sink = x;
}
__global__ void nothing() {}

struct Time {
  double cold_us = 0, low_us = 0, high_us = 0, graph_us = 0;  // median, quartiles; graph
};

class Stopwatch {
 public:
  explicit Stopwatch(int sms) : sms_(sms), flush_(256u << 20), sink_(256) {
    flush_.fill(1);
    SMLA_CHECK(cudaStreamCreate(&stream));
    events_.resize(2 * kReps);
    for (cudaEvent_t& event : events_) SMLA_CHECK(cudaEventCreate(&event));
  }
  cudaStream_t stream;
  int rest = 1;  // reads of 256 MB before each cold call: 60 us each at full clock and little power
  unsigned* sink() const { return sink_.get<unsigned>(); }
  void flush() { read_all<<<sms_ * 8, 256, 0, stream>>>(flush_.get<uint4>(), flush_.bytes() / 16, sink()); }
  /// `call(i)` enqueues call i on `stream`; inputs of call i are set i % sets.
  Time measure(const std::function<void(int)>& call, int sets, int reps = kReps) {
    for (int i = 0; i < 200; ++i) flush();  // clocks up
    call(0);
    for (int i = 0; i < reps; ++i) {
      for (int k = 0; k < rest; ++k) flush();
      SMLA_CHECK(cudaEventRecord(events_[2 * i], stream));
      call(i + 1);
      SMLA_CHECK(cudaEventRecord(events_[2 * i + 1], stream));
    }
    SMLA_CHECK(cudaStreamSynchronize(stream));
    std::vector<float> ms(reps);
    for (int i = 0; i < reps; ++i) SMLA_CHECK(cudaEventElapsedTime(&ms[i], events_[2 * i], events_[2 * i + 1]));
    std::sort(ms.begin(), ms.end());
    Time time{ms[reps / 2] * 1e3, ms[reps / 4] * 1e3, ms[reps * 3 / 4] * 1e3, 0};
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    SMLA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < sets; ++i) call(i);
    SMLA_CHECK(cudaStreamEndCapture(stream, &graph));
    SMLA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    SMLA_CHECK(cudaGraphLaunch(executable, stream));
    const int replays = std::max(2, static_cast<int>(20000 / (time.cold_us * sets)));
    SMLA_CHECK(cudaEventRecord(events_[0], stream));
    for (int i = 0; i < replays; ++i) SMLA_CHECK(cudaGraphLaunch(executable, stream));
    SMLA_CHECK(cudaEventRecord(events_[1], stream));
    SMLA_CHECK(cudaStreamSynchronize(stream));
    float all_ms;
    SMLA_CHECK(cudaEventElapsedTime(&all_ms, events_[0], events_[1]));
    SMLA_CHECK(cudaGraphExecDestroy(executable));
    SMLA_CHECK(cudaGraphDestroy(graph));
    time.graph_us = all_ms * 1e3 / (replays * sets);
    return time;
  }

 private:
  static constexpr int kReps = 41;
  int sms_;
  Buffer flush_, sink_;
  std::vector<cudaEvent_t> events_;
};

struct Options {
  std::vector<int> h = {8, 16, 64, 128}, b = {1, 8, 32, 128}, splits = {0};
  std::vector<std::string> formats = {"bf16", "fp8_656"}, kernels;
  int s_q = 1, topk = 2048, ctx = 32768, page = 64, rest = 1;
  bool sweep = false;
};

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> list;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    list.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}
std::vector<int> numbers(const std::string& text) {
  std::vector<int> list;
  for (const std::string& word : words(text)) list.push_back(std::stoi(word));
  return list;
}

/// The pool of one format and what a call needs beside it.
struct Bench {
  Bench(int format_, Stopwatch& watch_)
      : format(format_), row_bytes(static_cast<int>(smla::row_bytes(static_cast<KvFormat>(format_), 576))), watch(watch_) {
    kv = Buffer(size_t{kPages} * kPageSize * row_bytes);
    if (format == SMLA_KV_FP8_656) fill_fp8<<<4096, 256>>>(kv.get<uint8_t>(), size_t{kPages} * kPageSize, 2);
    else fill_normal<<<4096, 256>>>(kv.get<uint32_t>(), kv.bytes() / 4, 1, format == SMLA_KV_FP16);
    SMLA_CHECK(cudaGetLastError());
    SMLA_CHECK(cudaDeviceSynchronize());
  }
  int format, row_bytes;
  Stopwatch& watch;
  Buffer kv;

  smla_problem problem(const Options& o, int b, int h, int page_size) const {
    smla_problem p{};
    p.abi_version = SMLA_ABI_VERSION;
    p.struct_size = sizeof p;
    p.pass_kind = o.s_q > 16 ? SMLA_PASS_PREFILL : SMLA_PASS_DECODE;
    p.b = b, p.s_q = o.s_q, p.h_q = h, p.s_kv = o.ctx, p.topk = o.topk, p.d_qk = 576, p.d_v = 512;
    p.page_size = page_size, p.num_pages = kPages * kPageSize / page_size, p.max_pages = o.ctx / page_size;
    p.num_slots = int64_t{kPages} * kPageSize;
    p.q_stride_bytes[2] = 1152, p.q_stride_bytes[1] = 1152 * h, p.q_stride_bytes[0] = int64_t{1152} * h * o.s_q;
    p.out_stride_bytes[2] = 1024, p.out_stride_bytes[1] = 1024 * h, p.out_stride_bytes[0] = int64_t{1024} * h * o.s_q;
    p.lse_stride_bytes[1] = 4 * h, p.lse_stride_bytes[0] = int64_t{4} * h * o.s_q;
    p.indices_stride_bytes[1] = 4 * o.topk, p.indices_stride_bytes[0] = int64_t{4} * o.topk * o.s_q;
    p.block_table_stride_bytes = int64_t{4} * p.max_pages;
    p.page_stride_bytes = int64_t{page_size} * row_bytes;
    p.q_dtype = p.rope_dtype = format == SMLA_KV_FP16 ? SMLA_FP16 : SMLA_BF16;
    p.kv_format = format;
    p.flags = SMLA_FLAG_TAIL_PADDED;
    p.sm_scale = 1.f / 24;
    set_device(p);
    return p;
  }
};

/// `sets` x b lists of topk distinct slots out of contexts of `ctx` tokens on scattered pages; block tables of the same contexts.
struct Lists {
  Buffer indices, tables;
  Lists(const Options& o, int b, int sets, int page_size) {
    std::mt19937 random(7);
    const int context_pages = o.ctx / kPageSize;
    std::vector<int> pages(kPages), positions(o.ctx);
    std::iota(pages.begin(), pages.end(), 0);
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<int32_t> slots, table;
    for (int request = 0, used = kPages; request < sets * b; ++request) {
      if (used + context_pages > kPages) used = 0, std::shuffle(pages.begin(), pages.end(), random);
      const int* page = pages.data() + used;
      used += context_pages;
      for (int j = 0; j < o.s_q; ++j)
        for (int k = 0; k < o.topk; ++k) {
          std::swap(positions[k], positions[k + random() % (o.ctx - k)]);
          slots.push_back(page[positions[k] / kPageSize] * kPageSize + positions[k] % kPageSize);
        }
      for (int i = 0; i < o.ctx / page_size; ++i)
        table.push_back(page_size == kPageSize ? page[i] : page[i * page_size / kPageSize] * (kPageSize / page_size) + i % (kPageSize / page_size));
    }
    indices = Buffer::of(slots);
    tables = Buffer::of(table);
  }
};

int sets_for(int b) { return b == 1 ? 96 : b <= 8 ? 24 : b <= 32 ? 12 : 6; }

void print_time(const char* name, const smla_problem& p, int splits, const Time& t, double floor_cold, double floor_graph, double keys) {
  const double flops = 2.0 * p.h_q * keys * (576 + 512);
  printf("  %-34s h=%-3d ns=%-3d %8.1f us [%.1f %.1f]  x%.2f floor   graph %8.1f  x%.2f   %6.1f TFLOP/s\n", name, p.h_q, splits, t.cold_us, t.low_us,
         t.high_us, t.cold_us / floor_cold, t.graph_us, t.graph_us / floor_graph, flops / t.cold_us * 1e-6);
  fflush(stdout);
}

bool wanted(const Options& o, const smla_kernel& kernel) {
  if (o.kernels.empty()) return std::string(kernel.name) != "naive";
  return std::find(o.kernels.begin(), o.kernels.end(), kernel.name) != o.kernels.end();
}

void time_case(const Options& o, Bench& bench, int b, bool dense) {
  Stopwatch& watch = bench.watch;
  const int sets = dense || o.s_q > 16 ? 1 : sets_for(b), page_size = dense ? o.page : kPageSize;
  const Lists lists(o, b, sets, page_size);
  const int n = b * o.s_q * o.topk;
  Time floor{};
  double keys = n;
  if (dense) {  // the floor of dense decode is reading the context once
    keys = double(b) * o.ctx;
    floor = watch.measure(
        [&](int) { read_all<<<4096, 256, 0, watch.stream>>>(bench.kv.get<uint4>(), size_t(keys) * bench.row_bytes / 16, watch.sink()); }, 1, 11);
  } else {
    auto floor_of = [&](auto kernel, int rows) {
      return watch.measure(
          [&](int i) {
            kernel<<<(n / rows + 7) / 8, 256, 0, watch.stream>>>(bench.kv.get<uint8_t>(), lists.indices.get<int>() + size_t(i % sets) * n, n,
                                                                 watch.sink());
          },
          sets);
    };
    const Time one = bench.row_bytes == 656 ? floor_of(gather<41, 1>, 1) : floor_of(gather<72, 1>, 1);
    const Time four = bench.row_bytes == 656 ? floor_of(gather<41, 4>, 4) : floor_of(gather<72, 4>, 4);
    floor.cold_us = std::min(one.cold_us, four.cold_us), floor.graph_us = std::min(one.graph_us, four.graph_us);
  }
  printf("%s %s b=%d s_q=%d topk=%d ctx=%d page=%d: floor %.1f us (graph %.1f), %.0f GB/s\n", dense ? "dense" : "sparse",
         std::string(name_of(static_cast<KvFormat>(bench.format))).c_str(), b, o.s_q, o.topk, o.ctx, page_size, floor.cold_us, floor.graph_us,
         keys * bench.row_bytes / floor.cold_us * 1e-3);
  const Buffer seq_lens = Buffer::of(std::vector<int32_t>(b, o.ctx));
  for (const int h : o.h) {
    smla_problem p = bench.problem(o, b, h, page_size);
    if (dense) p.flags |= SMLA_FLAG_DENSE_SET;
    const size_t q_bytes = size_t(b) * p.q_stride_bytes[0];
    Buffer q(q_bytes * std::min(sets, 6)), out(size_t(b) * p.out_stride_bytes[0]), lse(size_t(b) * p.lse_stride_bytes[0]);
    fill_normal<<<1024, 256>>>(q.get<uint32_t>(), q.bytes() / 4, 3, p.q_dtype == SMLA_FP16);
    auto buffers = [&](int i) {
      const size_t set = i % sets;
      return smla_buffers{sizeof(smla_buffers),
                          0,
                          q.get<char>() + set % 6 * q_bytes,
                          bench.kv.get(),
                          lists.indices.get<int32_t>() + set * n,
                          nullptr,
                          lists.tables.get<int32_t>() + set * b * p.max_pages,
                          seq_lens.get<int32_t>(),
                          nullptr,
                          out.get(),
                          lse.get()};
    };
    for (const KernelEntry& entry : kernels()) {
      const smla_kernel& kernel = *entry.kernel;
      if (kernel.device != SMLA_DEVICE_CUDA || entry.group != KernelGroup::built_in || !wanted(o, kernel)) continue;
      for (const int splits : o.splits) {
        p.num_splits = splits;
        if (declines(kernel, p)) continue;
        Buffer workspace(static_cast<size_t>(workspace_bytes(kernel, p)) + 256);
        std::string error = prepare(kernel, p, buffers(0), workspace.get(), watch.stream);
        const Time t = watch.measure(
            [&](int i) {
              if (error.empty()) error = launch(kernel, p, buffers(i), workspace.get(), watch.stream);
            },
            sets, o.s_q > 16 ? 15 : 41);
        if (!error.empty()) printf("  %s: %s\n", kernel.name, error.c_str());
        else print_time(kernel.name, p, splits_used(kernel, p), t, floor.cold_us, floor.graph_us, keys);
      }
    }
    p.num_splits = 0;
    if (!o.sweep) continue;
    for (const cuda::MmaInstance* instance : cuda::mma_instances(bench.format)) {  // what plan_mma might have chosen
      if (instance->heads >= 2 * std::max(h, 8) || instance->heads * 4 < h) continue;
      for (const int splits : {1, 2, 3, 4, 8, 16, 32, 64, 128})
        for (const cuda::MergeBy merge : {cuda::MergeBy::cluster, cuda::MergeBy::kernel}) {
          const cuda::MmaPlan plan{instance, (h + instance->heads - 1) / instance->heads, splits, merge, instance->stages};
          const int64_t blocks = int64_t{b} * o.s_q * plan.head_blocks * splits, resident = int64_t{p.sm_count} * instance->blocks_per_sm;
          if (merge == cuda::MergeBy::cluster ? splits > 2 : splits == 1) continue;
          if (splits > 1 && (blocks > 2 * resident || blocks * 3 < resident) && blocks != 128) continue;
          Buffer workspace(static_cast<size_t>(cuda::mma_workspace_bytes(plan, int64_t{b} * o.s_q)) + 256);
          SMLA_CHECK(cuda::prepare_mma(plan));
          const Time t = watch.measure(
              [&](int i) {
                const smla_buffers io = buffers(i);
                SMLA_CHECK(cuda::launch_mma(plan, p, dense ? cuda::dense_job(p, io) : cuda::sparse_job(p, io), workspace.get(), watch.stream));
              },
              sets, 21);
          char name[64];
          snprintf(name, sizeof name, "  %s %s", instance->name, merge == cuda::MergeBy::cluster ? "cluster" : "kernel");
          print_time(name, p, splits, t, floor.cold_us, floor.graph_us, keys);
        }
    }
  }
}

}  // namespace

int time_main(int argc, char** argv) {
  std::string mode = "sparse";
  Options o;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i], key = word.substr(0, word.find('=')),
                      value = word.find('=') == std::string::npos ? "" : word.substr(word.find('=') + 1);
    if (value.empty()) mode = word;
    else if (key == "h") o.h = numbers(value);
    else if (key == "b") o.b = numbers(value);
    else if (key == "splits") o.splits = numbers(value);
    else if (key == "format") o.formats = words(value);
    else if (key == "kernel") o.kernels = words(value);
    else if (key == "s_q") o.s_q = std::stoi(value);
    else if (key == "topk") o.topk = std::stoi(value);
    else if (key == "ctx") o.ctx = std::stoi(value);
    else if (key == "page") o.page = std::stoi(value);
    else if (key == "rest") o.rest = std::stoi(value);
    else if (key == "sweep") o.sweep = std::stoi(value);
    else throw UsageError("time: unknown key '" + key + "': h b splits format kernel s_q topk ctx page rest sweep");
  }
  if (mode == "prefill") o.s_q = o.s_q > 1 ? o.s_q : 4096;
  smla_problem device{};
  set_device(device);
  Stopwatch watch(device.sm_count);
  watch.rest = o.rest;
  const Time empty = watch.measure([&](int) { nothing<<<1, 32, 0, watch.stream>>>(); }, 96);
  printf("sm_%d, %d SMs, %lld bytes of shared memory a block; an empty kernel reads %.1f us cold, %.1f in a graph\n", device.device_cc,
         device.sm_count, static_cast<long long>(device.smem_optin_bytes), empty.cold_us, empty.graph_us);
  for (const std::string& format : o.formats) {
    Bench bench(static_cast<int>(parse_enum<KvFormat>("format", format)), watch);
    const size_t bytes = size_t{4} << 30;
    const Time read = watch.measure([&](int) { read_all<<<4096, 256, 0, watch.stream>>>(bench.kv.get<uint4>(), bytes / 16, watch.sink()); }, 1, 11);
    printf("%s pool: contiguous read %.0f GB/s\n", format.c_str(), bytes / read.cold_us * 1e-3);
    for (const int b : o.b) time_case(o, bench, mode == "prefill" ? 1 : b, mode == "dense");
  }
  return 0;
}

}  // namespace smla::bringup
