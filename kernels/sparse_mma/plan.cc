// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "kernels/common/combine.h"
#include "kernels/common/door.h"
#include "kernels/sparse_mma/kernel.h"

namespace smla::cuda {

#define SMLA_MMA_FORMATS(X) X(bf16) X(fp16) X(fp8)
#define SMLA_DECLARE(format) extern const MmaInstance format##_h8_deep, format##_h8_wide, format##_h16, format##_h32;
SMLA_MMA_FORMATS(SMLA_DECLARE)
#undef SMLA_DECLARE

namespace {

enum { kH8Deep, kH8Wide, kH16, kH32 };
#define SMLA_FAMILY(format) {&format##_h8_deep, &format##_h8_wide, &format##_h16, &format##_h32},
const MmaInstance* const kFamilies[][4] = {SMLA_MMA_FORMATS(SMLA_FAMILY)};  // index: SMLA_KV_*
#undef SMLA_FAMILY

int choose(const smla_problem& p, int64_t tokens) {
  if (p.h_q <= 8 || (p.h_q <= 16 && tokens <= 2)) {  // one token: two blocks that share rows in L2 beat one with half the warps
    const int64_t units = tokens * ((p.h_q + 7) / 8);
    return 3 * units > 2 * p.sm_count ? kH8Wide : kH8Deep;
  }
  return p.h_q <= 16 ? kH16 : kH32;
}

}  // namespace

std::span<const MmaInstance* const> mma_instances(int kv_format) { return kFamilies[kv_format]; }

MmaPlan plan_mma(const smla_problem& p, int64_t max_entries) {
  const int64_t tokens = int64_t{p.b} * p.s_q;
  MmaPlan plan{kFamilies[p.kv_format][choose(p, tokens)], 1, p.num_splits};
  plan.head_blocks = (p.h_q + plan.instance->heads - 1) / plan.instance->heads;
  if (p.num_splits > 0) return plan;
  // Splits so that one wave of resident blocks covers the job: a power of two (equal shares, whole batches in the merge), and at least 16 entries
  // of the list for each block of a token.
  constexpr int64_t kReserved = 1024;  // bytes of shared memory that each block costs the SM beyond its own
  const int64_t resident =
      std::min<int64_t>(plan.instance->blocks_per_sm, (p.smem_optin_bytes + kReserved) / (plan.instance->shared_bytes + kReserved));
  const int64_t units = tokens * plan.head_blocks, by_wave = p.sm_count * std::max<int64_t>(resident, 1) / units;
  const int64_t by_list = max_entries / (16 * plan.head_blocks);
  const int64_t splits = std::clamp<int64_t>(std::min(by_wave, by_list), 1, kMaxSplits);
  plan.num_splits = static_cast<int>(std::bit_floor(static_cast<uint64_t>(splits)));
  return plan;
}

int64_t mma_workspace_bytes(const MmaPlan& plan, int64_t tokens) {
  return partial_bytes(tokens, plan.head_blocks * plan.instance->heads / 2, plan.num_splits);
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

void mma_contract(const smla_problem& p, smla_contract* c) {
  c->p_round = p.kv_format == SMLA_KV_BF16 ? SMLA_TYPE_BF16 : SMLA_TYPE_FP16;
  c->p_max = SMLA_P_MAX_ANY;
  c->part = SMLA_TYPE_FP32;
  c->deterministic = 1;
  c->scale_exact = 1;
}

}  // namespace smla::cuda
