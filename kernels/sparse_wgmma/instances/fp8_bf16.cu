// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse_wgmma/kernel.cuh"
namespace smla::cuda {
extern const WgmmaInstance wgmma_fp8_bf16 = wgmma_instance<WgmmaConfig<Source::fp8, false>>("fp8_bf16");
}
