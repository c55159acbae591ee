// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>

namespace smla {

/// Rows of a paged pool, by slot. Addresses are of the device that loads them.
struct PoolRows {
  const std::byte* kv;  // slot 0
  const int32_t* slots;
  int64_t n;
  int64_t page_stride_bytes;
  int32_t page_size, row_bytes;
};

}  // namespace smla
