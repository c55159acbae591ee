// SPDX-License-Identifier: Apache-2.0
// The few NVML entries that the reports need, opened at run time: toolkits come without nvml.h, and machines without the library.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace smla {

// Bits of nvmlClocksEventReasons: why a GPU runs slower than it might.
inline constexpr uint64_t kThrottleClocksSet = 0x2;  // somebody set the application clocks
inline constexpr uint64_t kThrottlePowerCap = 0x4;   // the power limit: normal under matrix work
inline constexpr uint64_t kThrottleSlowdown = 0xe8;  // hardware slowdown, software thermal, hardware thermal, power brake
/// "power_cap|sw_thermal": the words of the bits, joined by '|'; "" for none. Idle and clock-set bits have words too.
std::string throttle_words(uint64_t bits);

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
  std::optional<double> power_w() const;
  std::optional<double> temperature_c() const;
  /// Bits of nvmlClocksEventReasons.
  std::optional<uint64_t> throttle_reasons() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace smla
