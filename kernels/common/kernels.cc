// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/kernels.h"

#include "kernels/dense_paged/kernel.h"
#include "kernels/naive/kernel.h"
#include "kernels/sparse_mma/kernel.h"
#include "kernels/virtual_block_table/kernel.h"
#ifdef SMLA_HAVE_WGMMA
#include "kernels/sparse_wgmma/kernel.h"
#endif

namespace smla::cuda {

std::span<const smla_kernel* const> kernels() {
  static const smla_kernel* const kTable[] = {&naive_kernel,        &dense_paged_kernel, &virtual_block_table_kernel, &sparse_mma_kernel,
#ifdef SMLA_HAVE_WGMMA
                                              &sparse_wgmma_kernel, &dense_wgmma_kernel
#endif
  };
  return kTable;
}

std::vector<DynamicShared> dynamic_shared() {
  std::vector<DynamicShared> list;
  for (const int format : {SMLA_KV_BF16, SMLA_KV_FP16, SMLA_KV_FP8_656})
    for (const MmaInstance* instance : mma_instances(format)) list.push_back({instance->name, instance->shared_bytes});
#ifdef SMLA_HAVE_WGMMA
  for (const WgmmaInstance* instance : wgmma_instances()) list.push_back({instance->name, instance->shared_bytes});
#endif
  return list;
}

}  // namespace smla::cuda
