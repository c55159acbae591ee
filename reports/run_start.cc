// SPDX-License-Identifier: Apache-2.0
#include "reports/run_start.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cases/words.h"
#include "reports/env.h"
#include "reports/text.h"

namespace smla {
namespace {

constexpr struct {
  const char* name;
  std::string RunIdentity::*member;
} kIdentity[] = {{"verb", &RunIdentity::verb},     {"binary", &RunIdentity::binary}, {"plugin", &RunIdentity::plugin},
                 {"suite", &RunIdentity::suite},   {"cases", &RunIdentity::cases},   {"kernels", &RunIdentity::kernels},
                 {"device", &RunIdentity::device}, {"flags", &RunIdentity::flags}};

std::string shown(const std::string& value) {
  constexpr size_t kLongest = 100;
  return value.empty() ? "none" : value.size() <= kLongest ? value : value.substr(0, kLongest) + "...";
}

}  // namespace

std::string difference(const RunIdentity& then, const RunIdentity& now) {
  for (const auto& [name, member] : kIdentity)
    if (then.*member != clean_text(now.*member)) return fmt::format("another {}: {} then, {} now", name, shown(then.*member), shown(now.*member));
  return "";
}

void begin_run(const std::string& folder, const RunStart& start) {
  for (const char* file : {"summary.md", "junit.xml", "benchmark.json"})
    if (file != std::string_view("benchmark.json") || start.identity.verb != "check") std::filesystem::remove(fmt::format("{}/{}", folder, file));
  nlohmann::ordered_json env = environment();
  env["run_id"] = start.run_id;
  env["started_utc"] = start.started_utc;
  env["command"] = clean_text(start.command);
  env["resumed"] = start.resumed;
  for (const auto& [name, member] : kIdentity) env["identity"][name] = clean_text(start.identity.*member);
  write_text_file(folder + "/env.json", env.dump(2) + "\n");
}

RunStart read_run_start(const std::string& folder) {
  const std::string path = folder + "/env.json";
  if (!std::filesystem::exists(path)) throw UsageError(fmt::format("no run was begun in {} (there is no env.json)", folder));
  const auto env = nlohmann::json::parse(read_text_file(path), nullptr, false);
  if (!env.is_object()) throw UsageError(path + ": is no JSON object: cut short, or changed by hand");
  const auto at = [&]<class T>(const nlohmann::json& object, const char* key, T& value) {
    try {
      object.at(key).get_to(value);
    } catch (const nlohmann::json::exception&) {
      throw UsageError(fmt::format("{}: not what a run of this version wrote: no '{}' of its kind", path, key));
    }
  };
  RunStart start;
  at(env, "run_id", start.run_id);
  at(env, "started_utc", start.started_utc);
  at(env, "command", start.command);
  at(env, "resumed", start.resumed);
  nlohmann::json identity;
  at(env, "identity", identity);
  for (const auto& [name, member] : kIdentity) at(identity, name, start.identity.*member);
  return start;
}

}  // namespace smla
