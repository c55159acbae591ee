// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse_mma/kernel.cuh"
namespace smla::cuda {
extern const MmaInstance fp8_h8 = mma_instance<MmaConfig<SMLA_KV_FP8_656, 1, 1, 32, 4, 2>>("fp8_h8");
}
