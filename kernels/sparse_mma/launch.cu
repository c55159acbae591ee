// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/door.h"
#include "kernels/sparse_mma/kernel.cuh"
#include "kernels/sparse_mma/kernel.h"

namespace smla::cuda {

cudaError_t launch_mma(const MmaPlan& plan, const smla_problem& problem, const Job& job, void* workspace, cudaStream_t stream) {
  const MmaInstance& instance = *plan.instance;
  if (const cudaError_t status = prepare_mma(plan); status != cudaSuccess) return status;
  const int64_t units = int64_t{job.tokens} * plan.head_blocks;
  MmaParams params{job,
                   FastDiv::by(static_cast<uint32_t>(plan.num_splits)),
                   FastDiv::by(static_cast<uint32_t>(plan.head_blocks)),
                   FastDiv::by(static_cast<uint32_t>(job.s_q)),
                   plan.num_splits,
                   plan.head_blocks,
                   plan.merge,
                   plan.stages,
                   partials_in(workspace, job.tokens, plan.head_blocks * instance.heads / 2, plan.num_splits)};
  void* arguments[] = {&params};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(plan.num_splits), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(units * plan.num_splits));
  config.blockDim = dim3(static_cast<unsigned>(instance.threads));
  config.dynamicSmemBytes = static_cast<size_t>(instance.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = plan.merge == MergeBy::cluster && plan.num_splits > 1 ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelExC(&config, instance.kernel, arguments);
  if (status != cudaSuccess || plan.merge != MergeBy::kernel) return status;
  return launch_combine(job, params.partials, job.fp8 ? UnitOrder::mma8 : UnitOrder::mma16, problem.sm_count, problem.device_cc >= 90, stream);
}

}  // namespace smla::cuda
