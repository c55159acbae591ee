// SPDX-License-Identifier: Apache-2.0
// One warp = (token, head). A lane holds the value pairs lane + 32 i of the row: i < 8 latent, i = 8 RoPE. Keys one after another, online softmax
// with the true maximum. An invalid entry is skipped: nothing of it is read. Bound: latency of one row at a time; speed is not its purpose.
#include "kernels/common/door.h"
#include "kernels/common/job.cuh"
#include "kernels/common/pairs.cuh"
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
  const uint8_t* q = q_row(job, token, h);
  const int pairs = job.rope ? 9 : 8;
  float2 query[9], out[8] = {};
#pragma unroll
  for (int i = 0; i < 9; ++i)
    query[i] = i < pairs ? unpack16(job.fp16, *reinterpret_cast<const uint32_t*>(q + 128 * i + 4 * lane)) : make_float2(0, 0);

  float maximum = -__int_as_float(0x7f800000), sum = 0.f;
  const int n = entries_of(job.keys, token);
  const int32_t* list = list_of(job.keys, token);
  for (int e = 0; e < n; ++e) {
    const uint8_t* row = row_address(job.keys, load_entry(job.keys, list, e), e);
    if (!row) continue;
    float2 key[9];
    float dot = 0.f;
#pragma unroll
    for (int i = 0; i < 9; ++i)
      if (i < pairs) {
        key[i] = load_pair<kFp8>(row, i, lane, i < 8 ? job.fp16 : rope_fp16);
        dot = fmaf(query[i].x, key[i].x, fmaf(query[i].y, key[i].y, dot));
      }
#pragma unroll
    for (int o = 16; o; o >>= 1) dot += __shfl_xor_sync(~0u, dot, o);
    const float x = dot * job.scale_log2, now = fmaxf(maximum, x);
    const float change = exp2f(maximum - now), p = exp2f(x - now);  // the first key: exp2(-inf) = 0
    sum = fmaf(sum, change, p);
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = make_float2(fmaf(out[i].x, change, p * key[i].x), fmaf(out[i].y, change, p * key[i].y));
    maximum = now;
  }

  const float factor = output_factor(job, h, maximum, sum);
  uint8_t* to = out_row(job, token, h);
#pragma unroll
  for (int i = 0; i < 8; ++i) *reinterpret_cast<uint32_t*>(to + 128 * i + 4 * lane) = pack16(job.fp16, out[i].x * factor, out[i].y * factor);
  if (lane == 0) *lse_of(job, token, h) = natural_lse(maximum, sum);
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
