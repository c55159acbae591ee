// SPDX-License-Identifier: Apache-2.0
#include "harness/cuda/nvml.h"

#include <dlfcn.h>

namespace smla {
namespace {

constexpr int kSuccess = 0, kClockSm = 1, kClockMem = 2, kSensorGpu = 0;  // NVML's own numbers

template <class... Args>
int ask(void* library, const char* name, Args... args) {
  auto* function = library ? reinterpret_cast<int (*)(Args...)>(dlsym(library, name)) : nullptr;
  return function ? function(args...) : -1;
}

}  // namespace

std::string throttle_words(uint64_t bits) {
  static constexpr std::pair<uint64_t, const char*> kWords[] = {{0x1, "idle"},        {0x2, "clocks_set"},      {0x4, "power_cap"},
                                                                {0x8, "hw_slowdown"}, {0x10, "sync_boost"},     {0x20, "sw_thermal"},
                                                                {0x40, "hw_thermal"}, {0x80, "hw_power_brake"}, {0x100, "display_clocks"}};
  std::string text;
  for (const auto& [bit, word] : kWords)
    if (bits & bit) (text += text.empty() ? "" : "|") += word;
  return text;
}

Nvml::Nvml(const std::string& uuid) {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (ask(library_, "nvmlInit_v2") != kSuccess) return;
  if (ask(library_, "nvmlDeviceGetHandleByUUID", uuid.c_str(), &device_) != kSuccess) device_ = nullptr;
}

Nvml::~Nvml() {
  if (!library_) return;
  ask(library_, "nvmlShutdown");
  dlclose(library_);
}

std::optional<double> Nvml::power_limit_w() const {
  unsigned milliwatts = 0;
  if (!device_ || ask(library_, "nvmlDeviceGetEnforcedPowerLimit", device_, &milliwatts) != kSuccess) return {};
  return milliwatts / 1000.0;
}

std::optional<double> Nvml::power_w() const {
  unsigned milliwatts = 0;
  if (!device_ || ask(library_, "nvmlDeviceGetPowerUsage", device_, &milliwatts) != kSuccess) return {};
  return milliwatts / 1000.0;
}

std::optional<double> Nvml::temperature_c() const {
  unsigned degrees = 0;
  if (!device_ || ask(library_, "nvmlDeviceGetTemperature", device_, kSensorGpu, &degrees) != kSuccess) return {};
  return degrees;
}

std::optional<bool> Nvml::ecc() const {
  int current = 0, pending = 0;
  if (!device_ || ask(library_, "nvmlDeviceGetEccMode", device_, &current, &pending) != kSuccess) return {};
  return current == 1;
}

std::optional<std::string> Nvml::driver_version() const {
  char text[96] = {};
  if (ask(library_, "nvmlSystemGetDriverVersion", &text[0], 95u) != kSuccess) return {};
  return text;
}

std::optional<int32_t> Nvml::sm_clock_mhz() const {
  unsigned mhz = 0;
  if (!device_ || ask(library_, "nvmlDeviceGetClockInfo", device_, kClockSm, &mhz) != kSuccess) return {};
  return static_cast<int32_t>(mhz);
}

std::optional<int32_t> Nvml::mem_clock_mhz() const {
  unsigned mhz = 0;
  if (!device_ || ask(library_, "nvmlDeviceGetClockInfo", device_, kClockMem, &mhz) != kSuccess) return {};
  return static_cast<int32_t>(mhz);
}

std::optional<uint64_t> Nvml::throttle_reasons() const {
  unsigned long long reasons = 0;
  if (!device_) return {};
  if (ask(library_, "nvmlDeviceGetCurrentClocksEventReasons", device_, &reasons) != kSuccess &&
      ask(library_, "nvmlDeviceGetCurrentClocksThrottleReasons", device_, &reasons) != kSuccess)
    return {};
  return reasons;
}

}  // namespace smla
