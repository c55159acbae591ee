// SPDX-License-Identifier: Apache-2.0
// A small split-KV kernel, and what can be wrong with one on a GPU. One block = (token, head, split), four warps take its keys in turn; the warps'
// sums meet in shared memory, the splits' in the workspace, where the last block to arrive merges them in a fixed order. FP32 throughout.
#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/common/door.h"
#include "kernels/common/warp_row.cuh"
#include "kernels/mutants/gpu.h"

namespace smla::mutants {
namespace {
using namespace cuda;

enum class Defect {
  none,
  missing_barrier,
  counter_not_reset,
  workspace_assumed_zero,
  splits_frozen,
  offset_in_int32,
  minus_one_before_pool,
  merge_multiplies_nothing,
  launch_rejected,
  grid_limit,
  sticky_fault,
  private_stream,
  default_stream,
  synchronizes,
  allocates,
  argument_frozen_in_graph,
  shared_scratch,
};

struct Row {
  const char* name;
  Defect defect;
  const char* mechanism;
};
constexpr Row kBase = {"small_split", Defect::none, "what the GPU mutants were made from, healthy: split-KV, FP32, small and slow"};
constexpr Row kTable[] = {
    {"mut_gpu_missing_barrier", Defect::missing_barrier, "the warps' sums are read without a barrier after they were written"},
    {"mut_gpu_counter_not_reset", Defect::counter_not_reset, "the count of arrived splits is cleared when planning, not at every call"},
    {"mut_gpu_workspace_assumed_zero", Defect::workspace_assumed_zero, "the count of arrived splits is taken to be 0 in a new workspace"},
    {"mut_gpu_splits_frozen", Defect::splits_frozen, "keys are divided by the split count of the process's first call"},
    {"mut_gpu_offset_in_int32", Defect::offset_in_int32, "byte offsets of rows in 32 bits, signed"},
    {"mut_gpu_minus_one_before_pool", Defect::minus_one_before_pool, "-1 loads the row before the pool, with weight 0"},
    {"mut_gpu_merge_multiplies_nothing", Defect::merge_multiplies_nothing, "what an empty split left unwritten is multiplied by 0, not left out"},
    {"mut_gpu_launch_rejected", Defect::launch_rejected, "more shared memory than a block may have for long lists; nobody looks at the error"},
    {"mut_gpu_grid_limit", Defect::grid_limit, "query tokens on grid.y, which ends at 65535; nobody looks at the error"},
    {"mut_gpu_sticky_fault", Defect::sticky_fault, "an empty row reads through a null pointer, which ends the context"},
    {"mut_gpu_private_stream", Defect::private_stream, "works on a stream of its own, ordered with nothing"},
    {"mut_gpu_default_stream", Defect::default_stream, "works on the default stream"},
    {"mut_gpu_synchronizes", Defect::synchronizes, "waits for the stream before it returns"},
    {"mut_gpu_allocates", Defect::allocates, "allocates its partials at every call"},
    {"mut_gpu_argument_frozen_in_graph", Defect::argument_frozen_in_graph, "sinks are read on the host when planning and passed by value"},
    {"mut_gpu_shared_scratch", Defect::shared_scratch, "partials stand in one buffer of the library's, not in the workspace"},
};

constexpr int kWarps = 4, kThreads = 32 * kWarps, kMaxHeads = 128, kLatentValues = 512;

/// Of every (token, head) and split. state: reference in base 2, sum; sum = 0: no key, sums not written.
struct Scratch {
  unsigned* arrived;
  float2* state;
  float* sums;
};
int64_t arrived_bytes(int64_t units) { return (units * 4 + 255) / 256 * 256; }
int64_t scratch_bytes(int64_t units, int splits) {
  return splits == 1 ? 0 : arrived_bytes(units) + units * splits * (int64_t{sizeof(float2)} + kLatentValues * int64_t{sizeof(float)});
}
Scratch scratch_in(void* memory, int64_t units, int splits) {
  char* base = static_cast<char*>(memory);
  auto* state = reinterpret_cast<float2*>(base + arrived_bytes(units));
  return {reinterpret_cast<unsigned*>(base), state, reinterpret_cast<float*>(state + units * splits)};
}

struct Params {
  Job job;
  Scratch scratch;
  int splits, divided_by;  // equal where healthy
  bool rope_fp16;
  Defect defect;
  float sink[kMaxHeads];  // argument_frozen_in_graph
};

__device__ float column_sum(const float* sums, const float2* state, int n, int64_t stride, int column, float reference, bool all) {
  float sum = 0;
  for (int i = 0; i < n; ++i)
    if (all || state[i].y > 0) sum += sums[i * stride + column] * (state[i].y > 0 ? exp2f(state[i].x - reference) : 0.f);
  return sum;
}
__device__ float2 joint_state(const float2* state, int n) {
  float2 joint = {-__int_as_float(0x7f800000), 0.f};
  for (int i = 0; i < n; ++i)
    if (state[i].y > 0) joint.x = fmaxf(joint.x, state[i].x);
  for (int i = 0; i < n; ++i)
    if (state[i].y > 0) joint.y += state[i].y * exp2f(state[i].x - joint.x);
  return joint;
}

/// Loads the row's values, to multiply them by 0.
template <bool kFp8>
__device__ void add_times_zero(WarpRow<kFp8>& sums, const Job& job, const uint8_t* row, int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float2 value = load_pair<kFp8>(row, i, lane, job.fp16);
    sums.out[i] = make_float2(fmaf(0.f, value.x, sums.out[i].x), fmaf(0.f, value.y, sums.out[i].y));
  }
}

template <bool kFp8>
__global__ void __launch_bounds__(kThreads) small_split(const __grid_constant__ Params params) {
  __shared__ float warp_sums[kWarps][kLatentValues];
  __shared__ float2 warp_state[kWarps];
  __shared__ bool last;
  const Job& job = params.job;
  const int64_t block = int64_t{blockIdx.y} * gridDim.x + blockIdx.x, unit = block / params.splits;
  const int split = static_cast<int>(block % params.splits), h = static_cast<int>(unit % job.h_q);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Token token = token_of(job, static_cast<int>(unit / job.h_q));
  WarpRow<kFp8> mine(job, token, h, lane);
  const int n = entries_of(job.keys, token);
  const int32_t* list = list_of(job.keys, token);
  if (params.defect == Defect::sticky_fault && n == 0) mine.sum = *static_cast<const volatile float*>(nullptr);
  const int begin = static_cast<int>(int64_t{n} * split / params.divided_by), end = static_cast<int>(int64_t{n} * (split + 1) / params.divided_by);
  for (int e = begin + warp; e < min(end, n); e += kWarps) {
    const int entry = load_entry(job.keys, list, e);
    const uint8_t* row = row_address(job.keys, entry, e);
    if (params.defect == Defect::offset_in_int32 && row) row = job.keys.kv + static_cast<int32_t>(row - job.keys.kv);
    if (row) mine.add(job, row, lane, params.rope_fp16);
    else if (params.defect == Defect::minus_one_before_pool && entry == -1) add_times_zero(mine, job, job.keys.kv - job.keys.row_bytes, lane);
  }

#pragma unroll
  for (int i = 0; i < 8; ++i) *reinterpret_cast<float2*>(&warp_sums[warp][64 * i + 2 * lane]) = mine.out[i];
  if (lane == 0) warp_state[warp] = make_float2(mine.maximum, mine.sum);
  if (params.defect != Defect::missing_barrier) __syncthreads();

  float2 state = joint_state(warp_state, kWarps);
  const float* sums = &warp_sums[0][0];
  const float2* states = warp_state;
  int parts = kWarps;
  bool all = false;
  if (params.splits > 1) {
    float2* split_state = params.scratch.state + unit * params.splits;
    float* split_sums = params.scratch.sums + unit * params.splits * kLatentValues;
    if (state.y > 0)
      for (int c = static_cast<int>(threadIdx.x); c < kLatentValues; c += kThreads)
        split_sums[split * kLatentValues + c] = column_sum(sums, states, kWarps, kLatentValues, c, state.x, false);
    if (threadIdx.x == 0) split_state[split] = state;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(params.scratch.arrived + unit, 1u) == static_cast<unsigned>(params.splits - 1);
    __syncthreads();
    if (!last) return;
    __threadfence();
    state = joint_state(split_state, params.splits);
    sums = split_sums;
    states = split_state;
    parts = params.splits;
    all = params.defect == Defect::merge_multiplies_nothing;
    if (params.defect == Defect::workspace_assumed_zero && threadIdx.x == 0) params.scratch.arrived[unit] = 0;
  }
  float factor = output_factor(job, h, state.x, state.y);
  if (params.defect == Defect::argument_frozen_in_graph && job.sink && state.y > 0)
    factor = reciprocal(state.y + exp2_approx(fmaf(params.sink[h], 1.4426950408889634f, -state.x)));
  uint8_t* to = out_row(job, token, h);
  for (int c = 2 * static_cast<int>(threadIdx.x); c < kLatentValues; c += 2 * kThreads)
    *reinterpret_cast<uint32_t*>(to + 2 * c) = pack16(job.fp16, column_sum(sums, states, parts, kLatentValues, c, state.x, all) * factor,
                                                      column_sum(sums, states, parts, kLatentValues, c + 1, state.x, all) * factor);
  if (threadIdx.x == 0) *lse_of(job, token, h) = natural_lse(state.x, state.y);
}

Defect defect_of(const smla_kernel* self) { return static_cast<const Row*>(self->user)->defect; }

int64_t units_of(const smla_problem& p) { return int64_t{p.b} * p.s_q * p.h_q; }
int splits_of(const smla_problem& p) { return p.num_splits ? p.num_splits : std::clamp(p.topk / 32, 1, 4); }

int supports(const smla_kernel*, const smla_problem* p, char* reason, uint64_t n) {
  return supports_common(*p, 80, false, "bf16 conversions", reason, n);
}
int contract(const smla_kernel*, const smla_problem*, smla_contract* c) {
  c->p_round = SMLA_TYPE_FP32;
  c->deterministic = c->batch_invariant = c->scale_exact = 1;
  return 0;
}
int64_t workspace_bytes(const smla_kernel*, const smla_problem* p) { return scratch_bytes(units_of(*p), splits_of(*p)); }
int32_t splits_used(const smla_kernel*, const smla_problem* p) { return splits_of(*p); }

// What the defects keep between calls: workers are single-threaded.
std::vector<float> planned_sinks;
char* library_scratch = nullptr;
int64_t library_scratch_bytes = 0;

int prepare(const smla_kernel* self, const smla_problem* p, const smla_buffers* b, void* workspace, void* stream_) {
  const auto stream = static_cast<cudaStream_t>(stream_);
  switch (defect_of(self)) {
    case Defect::counter_not_reset:
      if (splits_of(*p) == 1) return 0;
      return report(cudaMemsetAsync(workspace, 0, static_cast<size_t>(arrived_bytes(units_of(*p))), stream), "clearing the counters");
    case Defect::argument_frozen_in_graph:
      planned_sinks.resize(static_cast<size_t>(p->h_q));
      if (!b->sink) return 0;
      cudaStreamSynchronize(stream);
      return report(cudaMemcpy(planned_sinks.data(), b->sink, planned_sinks.size() * sizeof(float), cudaMemcpyDeviceToHost), "reading the sinks");
    case Defect::shared_scratch:
      if (library_scratch_bytes >= workspace_bytes(self, p)) return 0;
      cudaFree(library_scratch);
      library_scratch_bytes = workspace_bytes(self, p);
      return report(cudaMalloc(&library_scratch, static_cast<size_t>(library_scratch_bytes)), "allocating");
    default:
      return 0;
  }
}

int launch(const smla_kernel* self, const smla_problem* p, const smla_buffers* b, void* workspace, void* stream_) {
  static std::atomic<int> first_splits{0};
  static cudaStream_t own = nullptr;
  const Defect defect = defect_of(self);
  auto stream = static_cast<cudaStream_t>(stream_);
  const int64_t units = units_of(*p);
  const int splits = splits_of(*p);
  int frozen = 0;
  if (defect == Defect::splits_frozen) first_splits.compare_exchange_strong(frozen, splits);
  if (defect == Defect::private_stream) {
    if (!own && report(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "creating a stream")) return 1;
    stream = own;
  }
  if (defect == Defect::default_stream) stream = nullptr;
  void* memory = defect == Defect::shared_scratch ? library_scratch : workspace;
  if (defect == Defect::allocates && report(cudaMalloc(&memory, static_cast<size_t>(scratch_bytes(units, splits) + 256)), "allocating")) return 1;

  Params params{sparse_job(*p, *b), scratch_in(memory, units, splits), splits, frozen ? frozen : splits, p->rope_dtype == SMLA_FP16, defect, {}};
  if (defect == Defect::argument_frozen_in_graph) std::copy(planned_sinks.begin(), planned_sinks.end(), params.sink);
  if (splits > 1 && defect != Defect::counter_not_reset && defect != Defect::workspace_assumed_zero &&
      report(cudaMemsetAsync(params.scratch.arrived, 0, static_cast<size_t>(arrived_bytes(units)), stream), "clearing the counters"))
    return 1;
  const auto x = static_cast<unsigned>(units * splits);
  const dim3 grid = defect == Defect::grid_limit ? dim3(static_cast<unsigned>(p->h_q * splits), static_cast<unsigned>(p->b * p->s_q)) : dim3(x);
  const size_t shared = defect == Defect::launch_rejected && p->topk > 256 ? 64 << 10 : 0;
  if (params.job.fp8) small_split<true><<<grid, kThreads, shared, stream>>>(params);
  else small_split<false><<<grid, kThreads, shared, stream>>>(params);
  const cudaError_t status = cudaGetLastError();
  if (defect == Defect::launch_rejected || defect == Defect::grid_limit) return 0;
  if (defect == Defect::synchronizes) cudaStreamSynchronize(stream);
  if (defect == Defect::allocates) cudaFree(memory);
  return report(status, "small_split: launch");
}

smla_kernel door(const Row& row) {
  return {.struct_size = sizeof(smla_kernel),
          .device = SMLA_DEVICE_CUDA,
          .name = row.name,
          .description = row.mechanism,
          .user = &row,
          .contract = contract,
          .supports = supports,
          .workspace_bytes = workspace_bytes,
          .prepare = prepare,
          .launch = launch,
          .last_error = last_error,
          .splits_used = splits_used};
}

}  // namespace

const smla_kernel& gpu_base() {
  static const smla_kernel kernel = door(kBase);
  return kernel;
}
std::span<const smla_kernel> gpu_kernels() {
  static const std::vector<smla_kernel> all = [] {
    std::vector<smla_kernel> kernels;
    for (const Row& row : kTable) kernels.push_back(door(row));
    return kernels;
  }();
  return all;
}

}  // namespace smla::mutants
