// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/kernels.h"

#include "kernels/dense_paged/kernel.h"
#include "kernels/naive/kernel.h"
#include "kernels/sparse_mma/kernel.h"
#include "kernels/virtual_block_table/kernel.h"

namespace smla::cuda {

std::span<const smla_kernel* const> kernels() {
  static const smla_kernel* const kTable[] = {&naive_kernel, &dense_paged_kernel, &virtual_block_table_kernel, &sparse_mma_kernel};
  return kTable;
}

}  // namespace smla::cuda
