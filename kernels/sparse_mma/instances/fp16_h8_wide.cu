// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse_mma/kernel.cuh"
namespace smla::cuda {
extern const MmaInstance fp16_h8_wide = mma_instance<MmaConfig<SMLA_KV_FP16, 1, 1, 16, 2, 2>>("fp16_h8_wide");
}
