// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse_wgmma/kernel.cuh"
namespace smla::cuda {
extern const WgmmaInstance wgmma_pages_bf16 = wgmma_instance<WgmmaConfig<Source::pages, false>>("pages_bf16");
}
