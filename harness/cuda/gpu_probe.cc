// SPDX-License-Identifier: Apache-2.0
#include "harness/cuda/gpu_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <memory>

namespace smla {
namespace {

struct Field {
  const char* key;
  std::string (*get)(const GpuInfo&);
  void (*set)(GpuInfo&, const std::string&);
};
template <class T>
T number(const std::string& text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}
// One row a field: what is printed is what is read.
const Field kFields[] = {
    {"name", [](const GpuInfo& g) { return g.name; }, [](GpuInfo& g, const std::string& s) { g.name = s; }},
    {"uuid", [](const GpuInfo& g) { return g.uuid; }, [](GpuInfo& g, const std::string& s) { g.uuid = s; }},
    {"driver_version", [](const GpuInfo& g) { return g.driver_version; }, [](GpuInfo& g, const std::string& s) { g.driver_version = s; }},
    {"cuda_version", [](const GpuInfo& g) { return g.cuda_version; }, [](GpuInfo& g, const std::string& s) { g.cuda_version = s; }},
    {"ecc", [](const GpuInfo& g) { return g.ecc; }, [](GpuInfo& g, const std::string& s) { g.ecc = s; }},
    {"cc", [](const GpuInfo& g) { return fmt::to_string(g.cc); }, [](GpuInfo& g, const std::string& s) { g.cc = number<int32_t>(s); }},
    {"sm_count", [](const GpuInfo& g) { return fmt::to_string(g.sm_count); },
     [](GpuInfo& g, const std::string& s) { g.sm_count = number<int32_t>(s); }},
    {"memory_bytes", [](const GpuInfo& g) { return fmt::to_string(g.memory_bytes); },
     [](GpuInfo& g, const std::string& s) { g.memory_bytes = number<int64_t>(s); }},
    {"l2_bytes", [](const GpuInfo& g) { return fmt::to_string(g.l2_bytes); },
     [](GpuInfo& g, const std::string& s) { g.l2_bytes = number<int64_t>(s); }},
    {"smem_optin_bytes", [](const GpuInfo& g) { return fmt::to_string(g.smem_optin_bytes); },
     [](GpuInfo& g, const std::string& s) { g.smem_optin_bytes = number<int64_t>(s); }},
    {"power_limit_w", [](const GpuInfo& g) { return fmt::format("{:.9g}", g.power_limit_w); },
     [](GpuInfo& g, const std::string& s) { g.power_limit_w = number<double>(s); }},
};

}  // namespace

int print_gpu_info(int ordinal) {
  GpuInfo info;
  std::string why;
  if (!describe_gpu(ordinal, info, why)) {
    fmt::print("why {}\n", why);
    return 0;
  }
  for (const Field& field : kFields) fmt::print("{} {}\n", field.key, field.get(info));
  return 0;
}

std::optional<GpuInfo> probe_gpu(int ordinal, std::string& why) {
  const std::string command = fmt::format("exec /proc/{}/exe worker --gpu-info={} 2>/dev/null", getpid(), ordinal);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
  why = "the question what GPU is here was not answered";
  if (!pipe) return {};
  GpuInfo info;
  bool told = false;
  char line[1024];
  while (std::fgets(line, sizeof line, pipe.get())) {
    std::string text = line;
    if (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t space = text.find(' ');
    const std::string key = text.substr(0, space), value = space == text.npos ? "" : text.substr(space + 1);
    if (key == "why") return why = value, std::nullopt;
    for (const Field& field : kFields)
      if (key == field.key) field.set(info, value), told = true;
  }
  if (!told) return {};
  why.clear();
  return info;
}

}  // namespace smla
