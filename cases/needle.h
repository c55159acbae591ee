// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace smla {

/// The inverse of mix32 (values.h): how a row's sign bits give its slot away.
uint32_t unmix32(uint32_t h);

}  // namespace smla
