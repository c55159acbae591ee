// SPDX-License-Identifier: Apache-2.0
// The door of every kernel on the mma.sync body; what they differ in is an MmaReading.
#include "kernels/common/door.h"

#include <string>

#include "kernels/sparse_mma/kernel.h"

namespace smla {
namespace cuda {
namespace {

const MmaReading& reading_of(const smla_kernel* self) { return *static_cast<const MmaReading*>(self->user); }
MmaPlan plan_of(const smla_kernel* self, const smla_problem& p) { return plan_mma(p, reading_of(self).max_entries(p)); }
int64_t own_bytes(const smla_kernel* self, const smla_problem& p) { return reading_of(self).own_bytes ? reading_of(self).own_bytes(p) : 0; }

int supports(const smla_kernel* self, const smla_problem* p, char* reason, uint64_t n) {
  const MmaReading& reading = reading_of(self);
  return (!reading.supports || reading.supports(*p, reason, n)) && mma_supports(*p, reason, n);
}
int64_t workspace_bytes(const smla_kernel* self, const smla_problem* p) {
  return own_bytes(self, *p) + mma_workspace_bytes(plan_of(self, *p), int64_t{p->b} * p->s_q);
}
int prepare(const smla_kernel* self, const smla_problem* p, const smla_buffers*, void*, void*) {
  return report(prepare_mma(plan_of(self, *p)), (std::string(self->name) + ": load").c_str());
}
int launch(const smla_kernel* self, const smla_problem* p, const smla_buffers* b, void* workspace, void* stream_) {
  const auto stream = static_cast<cudaStream_t>(stream_);
  const MmaReading& reading = reading_of(self);
  Job job = reading.job(*p, *b);
  cudaError_t status = reading.before ? reading.before(*p, job, workspace, stream) : cudaSuccess;
  if (status == cudaSuccess) status = launch_mma(plan_of(self, *p), *p, job, static_cast<char*>(workspace) + own_bytes(self, *p), stream);
  return status == cudaSuccess ? 0 : report(status, (std::string(self->name) + ": launch").c_str());
}
int32_t splits_used(const smla_kernel* self, const smla_problem* p) { return plan_of(self, *p).num_splits; }

}  // namespace

smla_kernel mma_kernel(const char* name, const char* description, const MmaReading& reading) {
  return {.struct_size = sizeof(smla_kernel),
          .device = SMLA_DEVICE_CUDA,
          .name = name,
          .description = description,
          .user = &reading,
          .contract = mma_contract,
          .supports = supports,
          .workspace_bytes = workspace_bytes,
          .prepare = prepare,
          .launch = launch,
          .last_error = last_error,
          .splits_used = splits_used};
}

}  // namespace cuda

namespace {
constexpr cuda::MmaReading kReading = {.max_entries = [](const smla_problem& p) { return int64_t{p.topk}; }, .job = cuda::sparse_job};
}
const smla_kernel sparse_mma_kernel = cuda::mma_kernel(
    "sparse_mma",
    "gather inside the kernel, mma.sync, split-KV, at most 99 KB of shared memory: for few heads, and for GPUs without wgmma or tcgen05", kReading);

}  // namespace smla
