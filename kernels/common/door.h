// SPDX-License-Identifier: Apache-2.0
// What every CUDA kernel says at the door in the same way: reasons, errors, the contract they share.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/api/smla_kernel.h"

namespace smla::cuda {

/// Writes a formatted reason; returns 0, what `supports` returns for "declined".
[[gnu::format(printf, 3, 4)]] int decline(char* reason, uint64_t reason_bytes, const char* format, ...);

/// What none of the kernels here can do: formats, types, head sizes, alignments, a device that is too old. 1 = nothing found.
/// `min_cc`: 80, 90. `exact_cc`: true if later generations lack the instructions too (`needs` names them).
int supports_common(const smla_problem& p, int min_cc, bool exact_cc, const char* needs, char* reason, uint64_t reason_bytes);

/// Keeps the text of a failed CUDA call for last_error of this thread. Returns 0 for cudaSuccess, else 1.
int report(cudaError_t status, const char* what);
void last_error(const smla_kernel*, char* text, uint64_t text_bytes);

/// Makes the kernel loadable with so much dynamic shared memory. Cheap when done before on this device.
cudaError_t allow_shared_memory(const void* kernel, int bytes);

}  // namespace smla::cuda
