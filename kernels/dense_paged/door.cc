// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/door.h"

#include "kernels/dense_paged/kernel.h"
#include "kernels/sparse_mma/kernel.h"

namespace smla {
namespace {

int supports(const smla_problem& p, char* reason, uint64_t n) {
  return p.flags & SMLA_FLAG_DENSE_SET ? 1 : cuda::decline(reason, n, "dense: attends every position, the case selects some");
}
constexpr cuda::MmaReading kReading = {
    .max_entries = [](const smla_problem& p) { return int64_t{p.s_kv}; }, .job = cuda::dense_job, .supports = supports};

}  // namespace

const smla_kernel dense_paged_kernel =
    cuda::mma_kernel("dense_paged", "dense paged split-KV decode on tensor cores (mma.sync), any page size: the dense baseline", kReading);

}  // namespace smla
