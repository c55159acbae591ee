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

int supports(const smla_kernel*, const smla_problem* p, char* reason, uint64_t n) {
  if (!mma_supports(*p, reason, n)) return 0;
  if (p->page_stride_bytes != int64_t{p->page_size} * sparse_job(*p, smla_buffers{}).keys.row_bytes)
    return decline(reason, n, "a page table of page size 1 cannot address padded pages (page stride %lld bytes)",
                   static_cast<long long>(p->page_stride_bytes));
  return 1;
}
int64_t workspace_bytes(const smla_kernel*, const smla_problem* p) {
  return lists_bytes(*p) + mma_workspace_bytes(plan_mma(*p, p->topk), int64_t{p->b} * p->s_q);
}
int prepare(const smla_kernel*, const smla_problem* p, const smla_buffers*, void*, void*) {
  return report(prepare_mma(plan_mma(*p, p->topk)), "virtual_block_table: load");
}
int launch(const smla_kernel*, const smla_problem* p, const smla_buffers* b, void* workspace, void* stream_) {
  const auto stream = static_cast<cudaStream_t>(stream_);
  Job job = sparse_job(*p, *b);
  if (compacts(*p)) {
    auto* slots = static_cast<int32_t*>(workspace);
    int32_t* counts = slots + int64_t{job.tokens} * p->topk;
    compact_lists<<<job.tokens, kCompactThreads, 0, stream>>>(job, slots, counts);
    if (report(cudaGetLastError(), "virtual_block_table: compact")) return 1;
    Keys& keys = job.keys;
    keys.list = slots;
    keys.list_stride_bytes[0] = int64_t{p->s_q} * p->topk * 4;
    keys.list_stride_bytes[1] = int64_t{p->topk} * 4;
    keys.lens = counts;
    keys.lens_stride[0] = p->s_q;
    keys.lens_stride[1] = 1;
  }
  job.keys.positions = 1;  // the dense reading: entry e is position e, its page (of one row) stands in the table
  job.keys.page = FastDiv::by(1);
  char* partials = static_cast<char*>(workspace) + lists_bytes(*p);
  return report(launch_mma(plan_mma(*p, p->topk), job, p->device_cc, partials, stream), "virtual_block_table: launch");
}
int32_t splits_used(const smla_kernel*, const smla_problem* p) { return plan_mma(*p, p->topk).num_splits; }

}  // namespace

const smla_kernel virtual_block_table_kernel = {
    .struct_size = sizeof(smla_kernel),
    .device = SMLA_DEVICE_CUDA,
    .name = "virtual_block_table",
    .description = "dense_paged, unmodified, with page_size 1 and the selected slots as page table; holes are compacted on the device",
    .contract = mma_contract,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .prepare = prepare,
    .launch = launch,
    .last_error = last_error,
    .splits_used = splits_used,
};

}  // namespace smla
