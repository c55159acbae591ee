// SPDX-License-Identifier: Apache-2.0
// The contract on both sides of the door.
#pragma once
#include "cases/contract.h"
#include "kernels/api/smla_kernel.h"

namespace smla {

smla_contract to_c(const Contract& contract);
/// Fields beyond c.struct_size are 0. `kernel` names it in errors. Throws UsageError for a value that the door does not define.
Contract from_c(const smla_contract& c, const char* kernel);

}  // namespace smla
