// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse_mma/kernel.cuh"
namespace smla::cuda {
extern const MmaInstance bf16_h16 = mma_instance<MmaConfig<SMLA_KV_BF16, 2, 1, 16, 4, 2>>("bf16_h16");
}
