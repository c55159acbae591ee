// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>

namespace smla::cpu {

/// Cuts 64-byte aligned arrays off a workspace. Started at null it only counts: the size of a layout and the layout itself are one piece of code.
class Carver {
 public:
  explicit Carver(void* base = nullptr) : base_(static_cast<uint8_t*>(base)) {}
  template <class T>
  T* take(int64_t count) {
    T* array = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return array;
  }
  int64_t used_bytes() const { return used_; }

 private:
  uint8_t* base_;
  int64_t used_ = 0;
};

}  // namespace smla::cpu
