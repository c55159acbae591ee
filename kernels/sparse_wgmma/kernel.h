// SPDX-License-Identifier: Apache-2.0
// Warpgroup MMA on Hopper: `sparse_wgmma` gathers the selected rows, `dense_wgmma` reads consecutive positions through the page table.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <span>

#include "kernels/common/combine.h"
#include "kernels/common/job.h"
#include "kernels/sparse_wgmma/config.h"

namespace smla {
extern const smla_kernel sparse_wgmma_kernel, dense_wgmma_kernel;
}

namespace smla::cuda {

struct WgmmaParams {
  CUtensorMap pages;  // Source::pages: [num_pages][page_size][d_qk]
  Job job;
  Partials partials;
  /// A row stands at kv + (page * page_units + offset * row_units) * unit_bytes: 32 bits name it, so that one shuffle hands it to a warp.
  uint32_t unit_bytes, page_units, row_units;
  int32_t head_blocks, num_splits;
  int32_t whole, items;  // tokens [0, whole) are not split; items of the launch: whole + (tokens - whole) * num_splits
};

/// Merges the partials of tokens [first_token, job.tokens): the kernel is in place when the splits end. See launch_combine for what it computes.
cudaError_t launch_merge(const Job& job, const Partials& partials, int first_token, cudaStream_t stream);

/// An instance as the host sees it.
struct WgmmaInstance {
  const char* name;  // of its file in instances/
  const void* kernel;
  int threads, shared_bytes;
};
std::span<const WgmmaInstance* const> wgmma_instances();

}  // namespace smla::cuda
