// SPDX-License-Identifier: Apache-2.0
// One warp = (token, head), its keys one after another. An invalid entry is skipped: nothing of it is read. Bound: latency of one row at a time;
// speed is not its purpose.
#include "kernels/common/door.h"
#include "kernels/common/warp_row.cuh"
#include "kernels/naive/kernel.h"

namespace smla {
namespace {
using namespace cuda;

constexpr int kWarps = 4;

template <bool kFp8>
__global__ void __launch_bounds__(32 * kWarps) naive_attention(const __grid_constant__ Job job, bool rope_fp16) {
  const int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (unit >= int64_t{job.tokens} * job.h_q) return;
  const int t = static_cast<int>(unit / job.h_q), h = static_cast<int>(unit % job.h_q), lane = threadIdx.x & 31;
  const Token token = token_of(job, t);
  WarpRow<kFp8> sums(job, token, h, lane);
  const int n = entries_of(job.keys, token);
  const int32_t* list = list_of(job.keys, token);
  for (int e = 0; e < n; ++e)
    if (const uint8_t* row = row_address(job.keys, load_entry(job.keys, list, e), e)) sums.add(job, row, lane, rope_fp16);

  const float factor = output_factor(job, h, sums.maximum, sums.sum);
  uint8_t* to = out_row(job, token, h);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    *reinterpret_cast<uint32_t*>(to + 128 * i + 4 * lane) = pack16(job.fp16, sums.out[i].x * factor, sums.out[i].y * factor);
  if (lane == 0) *lse_of(job, token, h) = natural_lse(sums.maximum, sums.sum);
}

int supports(const smla_kernel*, const smla_problem* p, char* reason, uint64_t n) {
  if (!supports_common(*p, 80, false, "bf16 conversions", reason, n)) return 0;
  if (p->num_splits > 1) return decline(reason, n, "num_splits = %d: this kernel does not split", p->num_splits);
  return 1;
}
int contract(const smla_kernel*, const smla_problem*, smla_contract* c) {
  c->p_round = SMLA_TYPE_FP32;
  c->deterministic = c->batch_invariant = c->scale_exact = 1;
  return 0;
}
int64_t workspace_bytes(const smla_kernel*, const smla_problem*) { return 0; }
int launch(const smla_kernel*, const smla_problem* p, const smla_buffers* b, void*, void* stream) {
  const Job job = sparse_job(*p, *b);
  const bool rope_fp16 = p->rope_dtype == SMLA_FP16;
  const auto blocks = static_cast<unsigned>((int64_t{job.tokens} * job.h_q + kWarps - 1) / kWarps);
  if (job.fp8) naive_attention<true><<<blocks, 32 * kWarps, 0, static_cast<cudaStream_t>(stream)>>>(job, rope_fp16);
  else naive_attention<false><<<blocks, 32 * kWarps, 0, static_cast<cudaStream_t>(stream)>>>(job, job.fp16);
  return report(cudaGetLastError(), "naive: launch");
}
int32_t splits_used(const smla_kernel*, const smla_problem*) { return 1; }

}  // namespace

const smla_kernel naive_kernel = {
    .struct_size = sizeof(smla_kernel),
    .device = SMLA_DEVICE_CUDA,
    .name = "naive",
    .description = "one warp a (token, head), fp32: the third opinion on the device, all formats and shapes",
    .contract = contract,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = launch,
    .last_error = last_error,
    .splits_used = splits_used,
};

}  // namespace smla
