// SPDX-License-Identifier: Apache-2.0
// The merge as a kernel of its own: one block = (token, pair of heads, `units` units).
#include <algorithm>
#include <bit>

#include "kernels/common/combine.cuh"

namespace smla::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 2;

template <UnitOrder kOrder>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    combine_kernel(const __grid_constant__ Job job, const __grid_constant__ Partials partials, int units) {
  __shared__ MergeMeeting meeting;
  const int shares = 256 / units, t = static_cast<int>(blockIdx.x) / shares / partials.pairs;
  const int pair = static_cast<int>(blockIdx.x) / shares % partials.pairs, first_unit = static_cast<int>(blockIdx.x) % shares * units;
  Merge<kOrder> merge(job, partials, meeting, t, pair, first_unit, units);
  // A rehearsal that loads nothing, while the split kernel still runs: instructions come from far away, and are then here when they are needed.
#pragma unroll 1
  for (int live = 0; live < 2; ++live) {
    if (live) wait_for_previous_kernel();
    merge.run(live ? partials.num_splits : 0, live);
    __syncthreads();
  }
}

}  // namespace

cudaError_t launch_combine(const Job& job, const Partials& partials, UnitOrder order, int sm_count, bool overlap, cudaStream_t stream) {
  const void* kernel = order == UnitOrder::mma16 ? reinterpret_cast<const void*>(combine_kernel<UnitOrder::mma16>)
                                                 : reinterpret_cast<const void*>(combine_kernel<UnitOrder::mma8>);
  const int64_t pairs = int64_t{job.tokens} * partials.pairs;
  auto units_for = [&](int splits_a_thread) {
    return std::clamp(kThreads * splits_a_thread / static_cast<int>(std::bit_ceil(static_cast<unsigned>(partials.num_splits))), 32,
                      32 * splits_a_thread);
  };
  // Beside a block of the splits one of these finds room: a second wave of them would begin when the splits end, with a rehearsal.
  int units = units_for(4);
  if (pairs * (256 / units) > sm_count) units = units_for(8);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(pairs * (256 / units)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  Job job_copy = job;
  Partials partials_copy = partials;
  void* arguments[] = {&job_copy, &partials_copy, &units};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace smla::cuda
