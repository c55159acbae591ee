// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/door.h"

#include "kernels/dense_paged/kernel.h"
#include "kernels/sparse_mma/kernel.h"

namespace smla {
namespace {
using namespace cuda;

int supports(const smla_kernel*, const smla_problem* p, char* reason, uint64_t n) {
  if (!(p->flags & SMLA_FLAG_DENSE_SET)) return decline(reason, n, "dense: attends every position, the case selects some");
  return mma_supports(*p, reason, n);
}
int64_t workspace_bytes(const smla_kernel*, const smla_problem* p) { return mma_workspace_bytes(plan_mma(*p, p->s_kv), int64_t{p->b} * p->s_q); }
int prepare(const smla_kernel*, const smla_problem* p, const smla_buffers*, void*, void*) {
  return report(prepare_mma(plan_mma(*p, p->s_kv)), "dense_paged: load");
}
int launch(const smla_kernel*, const smla_problem* p, const smla_buffers* b, void* workspace, void* stream) {
  return report(launch_mma(plan_mma(*p, p->s_kv), dense_job(*p, *b), p->device_cc, workspace, static_cast<cudaStream_t>(stream)),
                "dense_paged: launch");
}
int32_t splits_used(const smla_kernel*, const smla_problem* p) { return plan_mma(*p, p->s_kv).num_splits; }

}  // namespace

const smla_kernel dense_paged_kernel = {
    .struct_size = sizeof(smla_kernel),
    .device = SMLA_DEVICE_CUDA,
    .name = "dense_paged",
    .description = "dense paged split-KV decode on tensor cores (mma.sync), any page size: the dense baseline",
    .contract = mma_contract,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .prepare = prepare,
    .launch = launch,
    .last_error = last_error,
    .splits_used = splits_used,
};

}  // namespace smla
