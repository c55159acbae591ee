// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "kernels/common/combine.h"
#include "kernels/common/door.h"
#include "kernels/sparse_mma/kernel.h"

namespace smla::cuda {

extern const MmaInstance bf16_h8, bf16_h8_wide, bf16_h16, bf16_h32, fp16_h8, fp16_h8_wide, fp16_h16, fp16_h32, fp8_h8, fp8_h16, fp8_h32;

namespace {

/// h8, h16, h32, then h8_wide where there is one.
std::span<const MmaInstance* const> family(int kv_format) {
  static const MmaInstance* const kBf16[] = {&bf16_h8, &bf16_h16, &bf16_h32, &bf16_h8_wide};
  static const MmaInstance* const kFp16[] = {&fp16_h8, &fp16_h16, &fp16_h32, &fp16_h8_wide};
  static const MmaInstance* const kFp8[] = {&fp8_h8, &fp8_h16, &fp8_h32};
  if (kv_format == SMLA_KV_FP8_656) return kFp8;
  return kv_format == SMLA_KV_FP16 ? std::span<const MmaInstance* const>(kFp16) : kBf16;
}

/// Blocks of the instance that the device holds at once.
int64_t resident_blocks(const smla_problem& p, const MmaInstance& instance) {
  constexpr int64_t kReserved = 1024;  // bytes of shared memory that each block costs the SM beyond its own
  const int64_t by_shared = (p.smem_optin_bytes + kReserved) / (instance.shared_bytes + kReserved);
  return p.sm_count * std::clamp<int64_t>(by_shared, 1, instance.blocks_per_sm);
}

const MmaInstance& choose_instance(const smla_problem& p, int64_t tokens) {
  const auto instances = family(p.kv_format);
  if (p.h_q > 16) return *instances[2];
  if (p.h_q > 8 && tokens > 4) return *instances[1];  // up to four tokens: two blocks that share rows in L2 beat one with half the warps
  const bool alone = resident_blocks(p, *instances[0]) <= p.sm_count;  // one block an SM leaves too few bytes in flight
  return *instances[alone && instances.size() > 3 ? 3 : 0];
}

/// Splits so that one wave of resident blocks covers the job, but one block an SM where that leaves it few entries, since half as many partials merge
/// sooner: a power of two (equal shares, whole batches in the merge), and at least 32 entries of the list, or 16 for each block of a token. How few
/// is measured: fp8_656 with 16 heads is bound by instructions, and 16-bit rows with 8 heads by how many are asked for; both want the second block,
/// fp8_656 with 16 heads only beyond 256 entries, unless the power of two leaves more than a quarter of the SMs without a block.
int choose_splits(const smla_problem& p, const MmaPlan& plan, int64_t tokens, int64_t max_entries) {
  const int64_t units = tokens * plan.head_blocks, one_each = p.sm_count / units;
  const bool fp8 = p.kv_format == SMLA_KV_FP8_656, even = one_each <= static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(one_each))) * 4 / 3;
  const int few = fp8 == (p.h_q <= 8) ? 1024 : fp8 && p.h_q <= 16 && even ? 256 : 128;
  const int64_t by_wave = one_each * few >= max_entries ? one_each : resident_blocks(p, *plan.instance) / units;
  const int64_t by_list = max_entries / std::max(32, 16 * plan.head_blocks);
  const int64_t splits = std::clamp<int64_t>(std::min(by_wave, by_list), 1, kMaxSplits);
  return static_cast<int>(std::bit_floor(static_cast<uint64_t>(splits)));
}

}  // namespace

std::span<const MmaInstance* const> mma_instances(int kv_format) { return family(kv_format); }

MmaPlan plan_mma(const smla_problem& p, int64_t max_entries) {
  const int64_t tokens = int64_t{p.b} * p.s_q;
  MmaPlan plan{&choose_instance(p, tokens), 1, p.num_splits, MergeBy::kernel, 0};
  plan.head_blocks = (p.h_q + plan.instance->heads - 1) / plan.instance->heads;
  if (plan.num_splits == 0) plan.num_splits = choose_splits(p, plan, tokens, max_entries);
  if (plan.num_splits == 1 || (plan.num_splits == 2 && p.device_cc >= 90)) plan.merge = MergeBy::cluster;
  // Two blocks an SM: with four tiles of each in flight some SMs run ahead of the others, which then end later. 16-bit rows with 8
  // heads lose by three; fp8_656 gains with two splits, and is not measured with one.
  const bool crowded = std::min(tokens * plan.head_blocks * plan.num_splits, resident_blocks(p, *plan.instance)) > p.sm_count;
  const bool ahead = p.kv_format == SMLA_KV_FP8_656 ? plan.num_splits > 1 : plan.instance->heads == 16;
  plan.stages = crowded && ahead ? std::min(plan.instance->stages, 3) : plan.instance->stages;
  return plan;
}

int64_t mma_workspace_bytes(const MmaPlan& plan, int64_t tokens) {
  return plan.merge == MergeBy::cluster ? 0 : partial_bytes(tokens, plan.head_blocks * plan.instance->heads / 2, plan.num_splits);
}

cudaError_t prepare_mma(const MmaPlan& plan) { return allow_shared_memory(plan.instance->kernel, plan.instance->shared_bytes); }

int mma_supports(const smla_problem& p, char* reason, uint64_t n) {
  if (!supports_common(p, 80, false, "mma.sync of bf16", reason, n)) return 0;
  if (p.kv_format == SMLA_KV_FP8_656 && p.rope_dtype != p.q_dtype) return decline(reason, n, "the RoPE part of the cache must have q's type");
  if (p.smem_optin_bytes < plan_mma(p, 1).instance->shared_bytes)
    return decline(reason, n, "needs %d bytes of shared memory a block; this device has %lld", plan_mma(p, 1).instance->shared_bytes,
                   static_cast<long long>(p.smem_optin_bytes));
  return 1;
}

int mma_contract(const smla_kernel*, const smla_problem* p, smla_contract* c) {
  c->p_round = p->kv_format == SMLA_KV_BF16 ? SMLA_TYPE_BF16 : SMLA_TYPE_FP16;
  c->p_max = SMLA_P_MAX_ANY;
  c->part = SMLA_TYPE_FP32;
  c->deterministic = 1;
  c->scale_exact = 1;
  return 0;
}

}  // namespace smla::cuda
