// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "cases/random.h"
#include "harness/cuda/gather.cuh"
#include "harness/cuda/gpu_peaks.h"
#include "kernels/common/ptx.cuh"
#if defined(SMLA_HAVE_WGMMA)
#include "kernels/sparse_wgmma/wgmma.cuh"
#endif

namespace smla {
namespace {

void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Never zeros: they multiply faster than data do.
__global__ void fill_noise(uint64_t* words, int64_t n) {
  for (int64_t i = probe::first_thread(); i < n; i += probe::all_threads()) words[i] = mix64(static_cast<uint64_t>(i));
}
__global__ void fill_slots(int32_t* slots, int64_t n, uint32_t num_slots) {
  for (int64_t i = probe::first_thread(); i < n; i += probe::all_threads())
    slots[i] = static_cast<int32_t>(mix64(static_cast<uint64_t>(i) ^ 0x736c6f7473u) % num_slots);
}

/// A random bf16 of magnitude 1 to 2 and either sign, and the next one, as one word.
__device__ uint32_t two_values(uint32_t i) { return (static_cast<uint32_t>(mix64(i)) & 0x807f807fu) | 0x3f803f80u; }

constexpr int kMmaChains = 8;  // independent accumulators of a warp
constexpr int kMmaThreads = 512;

__global__ void __launch_bounds__(kMmaThreads) multiply_by_mma(int rounds, uint32_t* sink) {
  uint32_t a[4], b[2 * kMmaChains];
  float c[kMmaChains][4] = {};
  for (int i = 0; i < 4; ++i) a[i] = two_values(threadIdx.x * 64 + i);
  for (int i = 0; i < 2 * kMmaChains; ++i) b[i] = two_values(threadIdx.x * 64 + 16 + i);
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int chain = 0; chain < kMmaChains; ++chain) cuda::mma<false>(c[chain], a, b[2 * chain], b[2 * chain + 1]);
  float sum = 0;
  for (auto& chain : c)
    for (float v : chain) sum += v;
  probe::keep(__float_as_uint(sum), sink);
}

#if defined(SMLA_HAVE_WGMMA)
constexpr int kWgmmaThreads = 256, kTiles = 4;  // two warpgroups; tiles of B that are read in turn
struct WgmmaTiles {
  uint8_t a[2][cuda::kBlockBytes];           // 64 x 64 of each warpgroup
  uint8_t b[kTiles][4 * cuda::kBlockBytes];  // 64 x 256, shared by both
};
__global__ void __launch_bounds__(kWgmmaThreads) multiply_by_wgmma(int rounds, uint32_t* sink) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) uint8_t shared[];
  for (uint32_t i = threadIdx.x; i < sizeof(WgmmaTiles) / 4; i += kWgmmaThreads) reinterpret_cast<uint32_t*>(shared)[i] = two_values(i);
  cuda::fence_proxy_async();
  __syncthreads();
  const uint32_t base = cuda::shared_address(shared), group = threadIdx.x / 128;
  const uint64_t a = cuda::descriptor(base + group * cuda::kBlockBytes, cuda::kMajorK);
  float d[128] = {};
  for (int round = 0; round < rounds; ++round) {
    const uint64_t b = cuda::descriptor(base + 2 * cuda::kBlockBytes + static_cast<uint32_t>(round % kTiles) * 4 * cuda::kBlockBytes, cuda::kMajorMn);
    cuda::pin(d);
    cuda::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) cuda::wgmma_values<false, 256>(d, a + static_cast<uint64_t>(k * 32 >> 4), b + static_cast<uint64_t>(k * 2048 >> 4));
    cuda::wgmma_commit();
    cuda::wgmma_wait<0>();
    cuda::pin(d);
  }
  float sum = 0;
  for (float v : d) sum += v;
  probe::keep(__float_as_uint(sum), sink);
#endif
}
#endif

class Bench {
 public:
  explicit Bench(int ordinal) {
    must(cudaSetDevice(ordinal), "cudaSetDevice");
    must(cudaGetDeviceProperties(&device_, ordinal), "cudaGetDeviceProperties");
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaEventCreate(&begin_), "cudaEventCreate");
    must(cudaEventCreate(&end_), "cudaEventCreate");
    size_t free = 0, total = 0;
    must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    pool_bytes_ = static_cast<int64_t>(std::min<size_t>(size_t{2} << 30, free / 4)) / 4096 * 4096;
    clearing_bytes_ = std::min<int64_t>(2 * device_.l2CacheSize, pool_bytes_ / 2);
    must(cudaMalloc(&pool_, static_cast<size_t>(pool_bytes_)), "cudaMalloc");
    must(cudaMalloc(&slots_, kMostRows * sizeof(int32_t)), "cudaMalloc");
    must(cudaMalloc(&sink_, sizeof *sink_), "cudaMalloc");
    fill_noise<<<4096, 256, 0, stream_>>>(reinterpret_cast<uint64_t*>(pool_), pool_bytes_ / 8);
    must(cudaStreamSynchronize(stream_), "filling");
  }

  std::vector<Peak> measure() {
    const double half = static_cast<double>(pool_bytes_) / 2;
    for (int i = 0; i < 20; ++i) read(pool_bytes_);  // brings the clocks up
    const std::string pool = joined(", best of 10, ", pool_bytes_ >> 20, " MiB");
    peaks_.push_back(
        {"read_gbps", static_cast<double>(pool_bytes_) / best_us(10, [&] { read(pool_bytes_); }) / 1e3, "16-byte loads in order" + pool});
    peaks_.push_back(
        {"copy_gbps",
         2 * half /
             best_us(10,
                     [&] {
                       must(cudaMemcpyAsync(pool_, pool_ + pool_bytes_ / 2, static_cast<size_t>(pool_bytes_ / 2), cudaMemcpyDeviceToDevice, stream_),
                            "copy");
                     }) /
             1e3,
         "cudaMemcpyAsync on the device, bytes read plus written" + pool});
    matrix();
    const auto empty = [&] { probe::nothing<<<1, 1, 0, stream_>>>(); };
    peaks_.push_back({"launch_event_us",
                      median_us(
                          25, [&] { clear_l2(); }, empty),
                      "an empty kernel between two events, cold, median of 25"});
    peaks_.push_back({"launch_graph_us", graph_us(empty), joined("a graph of ", kGraphCalls, " empty kernels, per kernel, median of 25")});
    for (const int32_t row_bytes : {1152, 656}) {
      for (const int64_t b : {1, 8, 32, 128})
        gather(joined(row_bytes, "_b", b), row_bytes, b * kTopk, pool_bytes_ - clearing_bytes_, [&] { clear_l2(); });
      gather(joined(row_bytes, "_one_context"), row_bytes, kMostRows, int64_t{32768} * row_bytes, [] {});  // in most L2s
    }
    return std::move(peaks_);
  }

 private:
  static constexpr int64_t kTopk = 2048, kMostRows = 512 * kTopk;
  static constexpr int kGraphCalls = 20;

  double timed_us(const std::function<void()>& work) {
    double us = 0;
    must(probe::timed_us(stream_, begin_, end_, work, us), "timing between two events");
    return us;
  }
  void read(int64_t bytes) { probe::launch_read_over(pool_, bytes, sink_, device_, stream_); }
  void clear_l2() { probe::launch_clear_l2(pool_, clearing_bytes_, sink_, device_, stream_); }
  double best_us(int runs, const std::function<void()>& work) {
    double best = timed_us(work);
    for (int i = 1; i < runs; ++i) best = std::min(best, timed_us(work));
    return best;
  }
  double median_us(int runs, const std::function<void()>& before, const std::function<void()>& work) {
    std::vector<double> us;
    for (int i = 0; i < runs; ++i) before(), us.push_back(timed_us(work));
    std::nth_element(us.begin(), us.begin() + runs / 2, us.end());
    return us[static_cast<size_t>(runs / 2)];
  }
  double graph_us(const std::function<void()>& work) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < kGraphCalls; ++i) work();
    must(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    const double us = median_us(
        25, [] {}, [&] { must(cudaGraphLaunch(exec, stream_), "cudaGraphLaunch"); });
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return us / kGraphCalls;
  }

  void matrix() {
    const int arch = device_.major * 10 + device_.minor, sms = device_.multiProcessorCount;
    if (arch >= 100 && arch < 120) return;  // their own matrix unit (tcgen05) is not spoken here: no roof is better than one too low
    const int rounds = 4096;
    const auto rate = [&](double flops, const std::function<void()>& work) { return flops / best_us(20, work) / 1e6; };
#if defined(SMLA_HAVE_WGMMA)
    if (arch == 90) {
      must(cudaFuncSetAttribute(multiply_by_wgmma, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(WgmmaTiles)), "shared memory");
      const double flops = 2.0 * 64 * 256 * 64 * 2 * (rounds / 4) * sms;
      peaks_.push_back(
          {"matrix_bf16_tflops",
           rate(flops, [&] { multiply_by_wgmma<<<static_cast<unsigned>(sms), kWgmmaThreads, sizeof(WgmmaTiles), stream_>>>(rounds / 4, sink_); }),
           "own wgmma loop over random bf16 in shared memory, best of 20 short bursts"});
    }
#endif
    const double flops = 2.0 * 16 * 8 * 16 * kMmaChains * (kMmaThreads / 32) * rounds * sms;
    const double mma = rate(flops, [&] { multiply_by_mma<<<static_cast<unsigned>(sms), kMmaThreads, 0, stream_>>>(rounds, sink_); });
    const bool best = arch != 90 || peaks_.back().name != "matrix_bf16_tflops";
    peaks_.push_back(
        {best ? "matrix_bf16_tflops" : "mma_sync_bf16_tflops", mma, "own mma.sync loop over random bf16 in registers, best of 20 short bursts"});
  }

  /// `n` rows at random places of `pool_bytes` behind what clears the cache, in the fastest way.
  void gather(const std::string& what, int32_t row_bytes, int64_t n, int64_t pool_bytes, const std::function<void()>& before) {
    fill_slots<<<256, 256, 0, stream_>>>(slots_, n, static_cast<uint32_t>(pool_bytes / row_bytes));
    const PoolRows rows{reinterpret_cast<const std::byte*>(pool_) + clearing_bytes_, slots_, n, row_bytes, 1, row_bytes};
    double best_us = 0;
    int best = 0;
    for (int way = 0; way < probe::gather_ways(device_); ++way)
      if (const double us = median_us(25, before, [&] { must(probe::launch_gather(rows, way, device_, sink_, stream_), "gather"); });
          best_us == 0 || us < best_us)
        best_us = us, best = way;
    peaks_.push_back({"gather_" + what + "_us", best_us,
                      joined(n, " rows at random places of ", pool_bytes >> 20, " MiB, ", probe::gather_way_text(best), ", median of 25")});
    peaks_.push_back({"gather_" + what + "_gbps", static_cast<double>(n * row_bytes) / best_us / 1e3, "the same as a rate"});
  }

  cudaDeviceProp device_ = {};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  int64_t pool_bytes_ = 0, clearing_bytes_ = 0;  // of which the first clear L2
  uint8_t* pool_ = nullptr;
  int32_t* slots_ = nullptr;
  uint32_t* sink_ = nullptr;
  std::vector<Peak> peaks_;
};

}  // namespace

std::vector<Peak> measure_gpu_peaks(int ordinal) {
  try {
    return Bench(ordinal).measure();
  } catch (const std::exception&) { return {}; }  // the caller says that nothing was measured
}

}  // namespace smla
