// SPDX-License-Identifier: Apache-2.0
// The few NVML entries that the reports need, opened at run time: toolkits come without nvml.h, and machines without the library.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace smla {

/// One GPU through NVML, found by its UUID ("GPU-..."). Every answer is empty where NVML is not there or does not say.
class Nvml {
 public:
  explicit Nvml(const std::string& uuid);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  bool usable() const { return device_ != nullptr; }
  std::optional<double> power_limit_w() const;
  std::optional<bool> ecc() const;
  std::optional<std::string> driver_version() const;
  std::optional<int32_t> sm_clock_mhz() const;
  std::optional<int32_t> mem_clock_mhz() const;
  /// Bits of nvmlClocksEventReasons: 0x4 software power cap, 0x8 hardware slowdown, 0x20 software thermal, 0x40 hardware thermal, 0x80 power brake.
  std::optional<uint64_t> throttle_reasons() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace smla
