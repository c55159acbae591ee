// SPDX-License-Identifier: Apache-2.0
// Sparse decode by mma.sync for few heads and for GPUs without wgmma or tcgen05; and the host side that `dense_paged` shares.
#pragma once
#include <cuda_runtime.h>

#include <span>

#include "kernels/common/job.h"
#include "kernels/sparse_mma/config.h"

namespace smla {
extern const smla_kernel sparse_mma_kernel;
}

namespace smla::cuda {

/// Instance and split count for a problem: a pure function of it. `max_entries`: the longest list a token may have.
struct MmaPlan {
  const MmaInstance* instance;
  int head_blocks, num_splits;
  MergeBy merge;
  int stages;  // of the ring, that are used
};
MmaPlan plan_mma(const smla_problem& problem, int64_t max_entries);
/// The instances of a KV format (SMLA_KV_*), for measuring: plan_mma chooses among them.
std::span<const MmaInstance* const> mma_instances(int kv_format);
int64_t mma_workspace_bytes(const MmaPlan& plan, int64_t tokens);
/// Loads the instance that the plan names.
cudaError_t prepare_mma(const MmaPlan& plan);
/// Launches the split kernel and, where the plan says so, a merge kernel. The workspace may be dirty.
cudaError_t launch_mma(const MmaPlan& plan, const smla_problem& problem, const Job& job, void* workspace, cudaStream_t stream);
/// How a kernel on the mma.sync body reads a call. `supports`: what it declines beyond mma_supports(). `own_bytes`: of the workspace, in front of the
/// partials. `before`: enqueued before the body; may change the job. The last three may be null.
struct MmaReading {
  int64_t (*max_entries)(const smla_problem&);
  Job (*job)(const smla_problem&, const smla_buffers&);
  int (*supports)(const smla_problem&, char* reason, uint64_t reason_bytes) = nullptr;
  int64_t (*own_bytes)(const smla_problem&) = nullptr;
  cudaError_t (*before)(const smla_problem&, Job&, void* own, cudaStream_t) = nullptr;
};
smla_kernel mma_kernel(const char* name, const char* description, const MmaReading& reading);

/// What the mma.sync body can do. 1 = supported.
int mma_supports(const smla_problem& problem, char* reason, uint64_t reason_bytes);
/// The precision of the mma.sync body for this problem's format, as the door asks for it. Returns 0.
int mma_contract(const smla_kernel*, const smla_problem* problem, smla_contract* contract);

}  // namespace smla::cuda
