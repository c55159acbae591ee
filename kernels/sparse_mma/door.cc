// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/door.h"

#include "kernels/sparse_mma/kernel.h"

namespace smla {
namespace {
using namespace cuda;

int supports(const smla_kernel*, const smla_problem* p, char* reason, uint64_t n) { return mma_supports(*p, reason, n); }
int64_t workspace_bytes(const smla_kernel*, const smla_problem* p) { return mma_workspace_bytes(plan_mma(*p, p->topk), int64_t{p->b} * p->s_q); }
int prepare(const smla_kernel*, const smla_problem* p, const smla_buffers*, void*, void*) {
  return report(prepare_mma(plan_mma(*p, p->topk)), "sparse_mma: load");
}
int launch(const smla_kernel*, const smla_problem* p, const smla_buffers* b, void* workspace, void* stream) {
  return report(launch_mma(plan_mma(*p, p->topk), sparse_job(*p, *b), p->device_cc, workspace, static_cast<cudaStream_t>(stream)),
                "sparse_mma: launch");
}
int32_t splits_used(const smla_kernel*, const smla_problem* p) { return plan_mma(*p, p->topk).num_splits; }

}  // namespace

const smla_kernel sparse_mma_kernel = {
    .struct_size = sizeof(smla_kernel),
    .device = SMLA_DEVICE_CUDA,
    .name = "sparse_mma",
    .description =
        "gather inside the kernel, mma.sync, split-KV, at most 99 KB of shared memory: for few heads, and for GPUs without wgmma or tcgen05",
    .contract = mma_contract,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .prepare = prepare,
    .launch = launch,
    .last_error = last_error,
    .splits_used = splits_used,
};

}  // namespace smla
