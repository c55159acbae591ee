// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse_mma/kernel.cuh"
namespace smla::cuda {
extern const MmaInstance fp8_h32 = mma_instance<MmaConfig<SMLA_KV_FP8_656, 2, 2, 32, 3, 1>>("fp8_h32");
}
