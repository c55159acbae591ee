// SPDX-License-Identifier: Apache-2.0
#include "harness/cuda/gpu_probe.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "harness/cuda/gpu_peaks.h"
#include "harness/python/python_worker.h"
#include "harness/rerun.h"

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

/// What `smla worker FLAG=ORDINAL` prints: "key rest of the line" each.
std::vector<std::pair<std::string, std::string>> ask_worker(const char* flag, int ordinal) {
  const std::string program = std::filesystem::canonical(program_file()).string();  // here: in the shell, /proc/self is the shell
  const std::string command = fmt::format("exec {} worker {}={} 2>/dev/null", shell_quote(program), flag, ordinal);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
  std::vector<std::pair<std::string, std::string>> answer;
  char line[1024];
  while (pipe && std::fgets(line, sizeof line, pipe.get())) {
    std::string text = line;
    if (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t space = text.find(' ');
    answer.emplace_back(text.substr(0, space), space == text.npos ? "" : text.substr(space + 1));
  }
  return answer;
}

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
  const auto answer = ask_worker("--gpu-info", ordinal);
  if (answer.size() == 1 && answer[0].first == "why") return why = answer[0].second, std::nullopt;
  why = "the question what GPU is here was not answered";
  if (answer.empty()) return {};
  GpuInfo info;
  for (const auto& [key, value] : answer)
    for (const Field& field : kFields)
      if (key == field.key) field.set(info, value);
  why.clear();
  return info;
}

std::vector<Peak> probe_gpu_peaks(int ordinal) {
  std::vector<Peak> peaks;
  for (const auto& [name, rest] : ask_worker("--gpu-peaks", ordinal)) {
    const size_t space = rest.find(' ');
    if (space != rest.npos) peaks.push_back({name, number<double>(rest.substr(0, space)), rest.substr(space + 1)});
  }
  return peaks;
}

int print_gpu_peaks(int ordinal) {
  for (const Peak& peak : measure_gpu_peaks(ordinal)) fmt::print("{} {:.9g} {}\n", peak.name, peak.value, peak.how);
  return 0;
}

}  // namespace smla
