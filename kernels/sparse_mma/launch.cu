// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/door.h"
#include "kernels/sparse_mma/kernel.cuh"
#include "kernels/sparse_mma/kernel.h"

namespace smla::cuda {

cudaError_t launch_mma(const MmaPlan& plan, const Job& job, int device_cc, void* workspace, cudaStream_t stream) {
  const MmaInstance& instance = *plan.instance;
  if (const cudaError_t status = prepare_mma(plan); status != cudaSuccess) return status;
  MmaParams params{job, partials_in(workspace, job.tokens, plan.head_blocks * instance.heads / 2, plan.num_splits), plan.head_blocks,
                   plan.num_splits};
  void* arguments[] = {&params};
  const auto blocks = static_cast<unsigned>(int64_t{job.tokens} * plan.head_blocks * plan.num_splits);
  const cudaError_t status =
      cudaLaunchKernel(instance.kernel, dim3(blocks), dim3(instance.threads), arguments, static_cast<size_t>(instance.shared_bytes), stream);
  if (status != cudaSuccess || plan.num_splits == 1) return status;
  return launch_combine(job, params.partials, job.fp8 ? UnitOrder::mma8 : UnitOrder::mma16, device_cc >= 90, stream);
}

}  // namespace smla::cuda
