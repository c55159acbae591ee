// SPDX-License-Identifier: Apache-2.0
#include "reports/env.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "git_stamp.h"
#include "reports/record.h"
#include "reports/text.h"

namespace smla {
namespace {

/// What follows `key` and `separator` on the first line that begins with key; "" where there is none.
std::string line_value(const char* path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find(separator);
    if (at == line.npos) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1), end = line.find_last_not_of(" \t\"");
    return begin == line.npos ? "" : clean_text(line.substr(begin, end - begin + 1));
  }
  return "";
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return clean_text(line);
}

}  // namespace

const BuildInfo& build_info() {
  static const BuildInfo info = [] {
    BuildInfo b{SMLA_VERSION, SMLA_GIT_COMMIT, {}, SMLA_COMPILER, SMLA_BUILD_TYPE, SMLA_CXX_FLAGS};
    if (!b.git_commit.empty()) b.git_dirty = SMLA_GIT_DIRTY;
    return b;
  }();
  return info;
}

Machine machine() {
  Machine m;
  struct utsname name;
  if (::uname(&name) == 0) {
    m.host = clean_text(name.nodename);
    m.kernel = clean_text(fmt::format("{} {}", name.sysname, name.release));
  }
  m.os = line_value("/etc/os-release", "PRETTY_NAME=", '=');
  m.cpu_model = line_value("/proc/cpuinfo", "model name", ':');
  m.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  cpu_set_t cpus;
  m.cpus = ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  m.memory_bytes = static_cast<long long>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  return m;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

nlohmann::ordered_json environment() {
  const BuildInfo& b = build_info();
  const Machine m = machine();
  nlohmann::ordered_json env;
  env["schema_version"] = kSchemaVersion;
  env["written_utc"] = utc_now();
  env["build"] = {
      {"tool_version", b.tool_version}, {"git_commit", b.git_commit}, {"git_dirty", b.git_dirty ? nlohmann::ordered_json(*b.git_dirty) : nullptr},
      {"compiler", b.compiler},         {"build_type", b.build_type}, {"flags", b.flags}};
  env["machine"] = {{"host", m.host},
                    {"os", m.os},
                    {"kernel", m.kernel},
                    {"cpu_model", m.cpu_model},
                    {"governor", m.governor},
                    {"cpus", m.cpus},
                    {"memory_bytes", m.memory_bytes}};
  env["packages"] = {
      {"fmt", FMT_VERSION},
      {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)}};
  return env;
}

}  // namespace smla
