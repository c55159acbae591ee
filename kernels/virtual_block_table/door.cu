// SPDX-License-Identifier: Apache-2.0
// Where the valid entries come first the list itself is the page table; holes are compacted on the device into the workspace.
#include "kernels/common/door.h"
#include "kernels/sparse_mma/kernel.h"
#include "kernels/virtual_block_table/compact.cuh"
#include "kernels/virtual_block_table/kernel.h"

namespace smla {
namespace {
using namespace cuda;

bool compacts(const smla_problem& p) { return !(p.flags & SMLA_FLAG_TAIL_PADDED); }
int64_t lists_bytes(const smla_problem& p) { return compacts(p) ? (int64_t{p.b} * p.s_q * (p.topk + 1) * 4 + 255) / 256 * 256 : 0; }

int supports(const smla_problem& p, char* reason, uint64_t n) {
  if (p.page_stride_bytes == int64_t{p.page_size} * sparse_job(p, smla_buffers{}).keys.row_bytes) return 1;
  return decline(reason, n, "a page table of page size 1 cannot address padded pages (page stride %lld bytes)",
                 static_cast<long long>(p.page_stride_bytes));
}

/// The dense reading: entry e is position e, its page (of one row) stands in the table.
Job table_of_slots(const smla_problem& p, const smla_buffers& b) {
  Job job = sparse_job(p, b);
  job.keys.positions = 1;
  job.keys.page = FastDiv::by(1);
  return job;
}

cudaError_t compact(const smla_problem& p, Job& job, void* lists, cudaStream_t stream) {
  if (!compacts(p)) return cudaSuccess;
  auto* slots = static_cast<int32_t*>(lists);
  int32_t* counts = slots + int64_t{job.tokens} * p.topk;
  compact_lists<<<job.tokens, kCompactThreads, 0, stream>>>(job, slots, counts);
  Keys& keys = job.keys;
  keys.list = slots;
  keys.list_stride_bytes[0] = int64_t{p.s_q} * p.topk * 4;
  keys.list_stride_bytes[1] = int64_t{p.topk} * 4;
  keys.lens = counts;
  keys.lens_stride[0] = p.s_q;
  keys.lens_stride[1] = 1;
  return cudaGetLastError();
}

constexpr MmaReading kReading = {.max_entries = [](const smla_problem& p) { return int64_t{p.topk}; },
                                 .job = table_of_slots,
                                 .supports = supports,
                                 .own_bytes = lists_bytes,
                                 .before = compact};

}  // namespace

const smla_kernel virtual_block_table_kernel =
    mma_kernel("virtual_block_table",
               "dense_paged, unmodified, with page_size 1 and the selected slots as page table; holes are compacted on the device", kReading);

}  // namespace smla
