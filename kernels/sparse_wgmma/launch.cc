// SPDX-License-Identifier: Apache-2.0
// The host side of the warpgroup-MMA kernels: which instance, how many splits, the launch.
#include <algorithm>
#include <numeric>

#include "kernels/common/door.h"
#include "kernels/sparse_wgmma/kernel.h"

namespace smla::cuda {

extern const WgmmaInstance wgmma_slots_bf16, wgmma_slots_fp16, wgmma_pages_bf16, wgmma_pages_fp16, wgmma_fp8_bf16;

namespace {

struct Plan {
  Source source;
  const WgmmaInstance* instance;
  int head_blocks, workers;  // workers: groups of head_blocks CTAs
  int64_t tokens, whole;     // tokens [0, whole) are not split
  int num_splits;            // of the others
  int pairs;                 // of heads in their partials: those of warps that have any head
};

/// Splits of `tokens` tokens of `tiles` tiles each, so that the last wave of workers ends early. Time is counted in tiles of 64 keys (1.85 us on an
/// H200 with cold rows). Constants fitted to measured split sweeps (README).
int choose_splits(int64_t tokens, int64_t tiles, int64_t workers, int pairs) {
  constexpr double kItem = 1.0;          // epilogue, first scores and softmax of an item
  constexpr double kMerge = 2.5;         // the merge kernel's own latency
  constexpr double kMergeBytes = 2.5e6;  // partial bytes written and read back in a tile's time
  constexpr int64_t kMost = 64;
  double best = 0;
  int chosen = 1;
  for (int64_t splits = 1; splits <= std::min(tiles, kMost); ++splits) {
    const int64_t waves = (tokens * splits + workers - 1) / workers, share = (tiles + splits - 1) / splits;
    double cost = static_cast<double>(waves) * (static_cast<double>(share) + kItem);
    if (splits > 1) cost += kMerge + static_cast<double>(tokens * splits * pairs) * (2 * 512 * 4) / kMergeBytes;
    if (splits == 1 || cost < best) best = cost, chosen = static_cast<int>(splits);
  }
  return chosen;
}

Plan plan(const smla_problem& p, bool dense) {
  const int64_t entries = dense ? p.s_kv : p.topk;
  const bool fp16 = p.q_dtype == SMLA_FP16;
  Plan plan{};
  if (p.kv_format == SMLA_KV_FP8_656) plan.source = Source::fp8, plan.instance = &wgmma_fp8_bf16;
  else if (dense && p.page_size % kTileTokens == 0 && p.d_qk == 576)
    plan.source = Source::pages, plan.instance = fp16 ? &wgmma_pages_fp16 : &wgmma_pages_bf16;
  else plan.source = Source::slots, plan.instance = fp16 ? &wgmma_slots_fp16 : &wgmma_slots_bf16;
  plan.head_blocks = (p.h_q + kBlockHeads - 1) / kBlockHeads;
  plan.pairs = (p.h_q + kWarpHeads - 1) / kWarpHeads * (kWarpHeads / 2);
  plan.workers = std::max(1, p.sm_count / plan.head_blocks);
  plan.tokens = int64_t{p.b} * p.s_q;
  const int64_t tiles = std::max<int64_t>(1, (entries + kTileTokens - 1) / kTileTokens);
  plan.num_splits = static_cast<int>(std::min<int64_t>(p.num_splits, tiles));
  if (plan.num_splits <= 0) {  // tokens that fill whole waves stay whole
    plan.whole = plan.tokens / plan.workers * plan.workers;
    plan.num_splits = choose_splits(plan.tokens - plan.whole, tiles, plan.workers, plan.pairs);
  }
  if (plan.num_splits == 1) plan.whole = plan.tokens;
  return plan;
}

int supports(const smla_problem& p, bool dense, char* reason, uint64_t n) {
  if (!supports_common(p, 90, true, "wgmma", reason, n)) return 0;
  if (dense && !(p.flags & SMLA_FLAG_DENSE_SET)) return decline(reason, n, "dense: attends every position, the case selects some");
  if (dense && p.kv_format == SMLA_KV_FP8_656) return decline(reason, n, "kv_format fp8_656 is read by sparse_wgmma only");
  if (p.kv_format == SMLA_KV_FP8_656 && (p.q_dtype != SMLA_BF16 || p.rope_dtype != SMLA_BF16))
    return decline(reason, n, "fp8_656 is converted to bf16 rows: q and RoPE must be bf16 (fp16 has no room for arbitrary scales)");
  if (!(p.sm_scale > 0)) return decline(reason, n, "sm_scale = %g: must be positive", static_cast<double>(p.sm_scale));
  const Plan chosen = plan(p, dense);
  if (p.smem_optin_bytes < chosen.instance->shared_bytes)
    return decline(reason, n, "needs %d bytes of shared memory a block; this device has %lld", chosen.instance->shared_bytes,
                   static_cast<long long>(p.smem_optin_bytes));
  const int64_t unit = std::gcd(p.page_stride_bytes, row_bytes(static_cast<KvFormat>(p.kv_format), p.d_qk));
  if (p.page_stride_bytes / unit * p.num_pages > int64_t{UINT32_MAX})
    return decline(reason, n, "a pool of %d pages, %lld bytes apart: more than 2^32 units of %lld bytes", p.num_pages,
                   static_cast<long long>(p.page_stride_bytes), static_cast<long long>(unit));
  return 1;
}

int contract(const smla_kernel*, const smla_problem* p, smla_contract* c) {
  c->p_round = SMLA_TYPE_Q;
  c->k_round = c->v_round = p->kv_format == SMLA_KV_FP8_656 ? SMLA_TYPE_BF16 : SMLA_TYPE_EXACT;
  c->p_max = SMLA_P_MAX_ANY;
  c->part = SMLA_TYPE_FP32;
  c->deterministic = 1;
  c->batch_invariant = p->num_splits > 0;  // the automatic count depends on the batch
  c->scale_exact = 1;
  return 0;
}

int64_t workspace_bytes(const smla_problem& p, bool dense) {
  const Plan chosen = plan(p, dense);
  return partial_bytes(chosen.tokens - chosen.whole, chosen.pairs, chosen.num_splits);
}

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
/// The driver's function, looked up once; nullptr where the driver lacks it.
EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
      found = nullptr;
    return reinterpret_cast<EncodeTiled>(found);
  }();
  return function;
}

/// [num_pages][page_size][d_qk] of 16-bit values; boxes of 64 columns x 64 rows, laid out as the MMA reads them.
cudaError_t encode_pages(const smla_problem& p, const void* kv, CUtensorMap* map) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(p.d_qk), static_cast<cuuint64_t>(p.page_size), static_cast<cuuint64_t>(p.num_pages)};
  const cuuint64_t strides[] = {2 * sizes[0], static_cast<cuuint64_t>(p.page_stride_bytes)};
  const cuuint32_t box[] = {64, kTileTokens, 1}, steps[] = {1, 1, 1};
  if (!encode_tiled()) return cudaErrorNotSupported;
  const CUresult status =
      encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(kv), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                     CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int prepare(const smla_problem& p, bool dense) {
  const WgmmaInstance& instance = *plan(p, dense).instance;
  return report(allow_shared_memory(instance.kernel, instance.shared_bytes), dense ? "dense_wgmma: load" : "sparse_wgmma: load");
}

cudaError_t launch(const smla_problem& p, const smla_buffers& b, bool dense, void* workspace, cudaStream_t stream) {
  const Plan chosen = plan(p, dense);
  const WgmmaInstance& instance = *chosen.instance;
  WgmmaParams params{};
  params.job = dense ? dense_job(p, b) : sparse_job(p, b);
  params.partials = partials_in(workspace, chosen.tokens - chosen.whole, chosen.pairs, chosen.num_splits);
  const Keys& keys = params.job.keys;
  const int64_t unit = std::gcd(keys.page_stride_bytes, int64_t{keys.row_bytes});
  params.unit_bytes = static_cast<uint32_t>(unit);
  params.page_units = static_cast<uint32_t>(keys.page_stride_bytes / unit);
  params.row_units = static_cast<uint32_t>(keys.row_bytes / unit);
  params.head_blocks = chosen.head_blocks;
  params.num_splits = chosen.num_splits;
  params.whole = static_cast<int32_t>(chosen.whole);
  params.items = static_cast<int32_t>(chosen.whole + (chosen.tokens - chosen.whole) * chosen.num_splits);
  if (chosen.source == Source::pages)
    if (const cudaError_t status = encode_pages(p, b.kv, &params.pages); status != cudaSuccess) return status;
  if (const cudaError_t status = allow_shared_memory(instance.kernel, instance.shared_bytes); status != cudaSuccess) return status;
  const auto blocks = static_cast<unsigned>(chosen.head_blocks * std::min(chosen.workers, params.items));
  void* arguments[] = {&params};
  const cudaError_t status = cudaLaunchKernel(instance.kernel, dim3(blocks), dim3(static_cast<unsigned>(instance.threads)), arguments,
                                              static_cast<size_t>(instance.shared_bytes), stream);
  if (status != cudaSuccess || chosen.num_splits == 1) return status;
  return launch_merge(params.job, params.partials, params.whole, stream);
}

}  // namespace

std::span<const WgmmaInstance* const> wgmma_instances() {
  static const WgmmaInstance* const kAll[] = {&wgmma_slots_bf16, &wgmma_slots_fp16, &wgmma_pages_bf16, &wgmma_pages_fp16, &wgmma_fp8_bf16};
  return kAll;
}

namespace {

/// The door of both kernels: what differs is where the keys are named.
template <bool kDense>
constexpr smla_kernel door(const char* name, const char* description) {
  smla_kernel kernel{};
  kernel.struct_size = sizeof(smla_kernel);
  kernel.device = SMLA_DEVICE_CUDA;
  kernel.name = name;
  kernel.description = description;
  kernel.contract = contract;
  kernel.supports = [](const smla_kernel*, const smla_problem* p, char* reason, uint64_t n) { return supports(*p, kDense, reason, n); };
  kernel.workspace_bytes = [](const smla_kernel*, const smla_problem* p) { return workspace_bytes(*p, kDense); };
  kernel.prepare = [](const smla_kernel*, const smla_problem* p, const smla_buffers*, void*, void*) { return prepare(*p, kDense); };
  kernel.launch = [](const smla_kernel* self, const smla_problem* p, const smla_buffers* b, void* workspace, void* stream) {
    return report(launch(*p, *b, kDense, workspace, static_cast<cudaStream_t>(stream)), self->name);
  };
  kernel.last_error = last_error;
  kernel.splits_used = [](const smla_kernel*, const smla_problem* p) -> int32_t { return plan(*p, kDense).num_splits; };
  return kernel;
}

}  // namespace
}  // namespace smla::cuda

namespace smla {
const smla_kernel sparse_wgmma_kernel =
    cuda::door<false>("sparse_wgmma", "Hopper: gather inside the kernel, warpgroup MMA, 64 or 128 heads, split-KV; decode and prefill");
const smla_kernel dense_wgmma_kernel =
    cuda::door<true>("dense_wgmma", "Hopper: the same body over consecutive positions of the page table: the dense baseline on sm_90");
}  // namespace smla
