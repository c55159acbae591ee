// SPDX-License-Identifier: Apache-2.0
// The adaptation that the field ships first: a dense paged kernel, unmodified, with page_size 1 and each token's slots as its page table.
#pragma once
#include "kernels/api/smla_kernel.h"

namespace smla {
extern const smla_kernel virtual_block_table_kernel;
}
