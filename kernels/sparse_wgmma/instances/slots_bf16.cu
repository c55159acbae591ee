// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse_wgmma/kernel.cuh"
namespace smla::cuda {
extern const WgmmaInstance wgmma_slots_bf16 = wgmma_instance<WgmmaConfig<Source::slots, false>>("slots_bf16");
}
