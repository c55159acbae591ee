// SPDX-License-Identifier: Apache-2.0
#include "harness/plan.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "harness/exit_status.h"
#include "kernels/registry.h"
#include "reports/text.h"

namespace smla {
namespace {

constexpr int64_t kMostCases = 1000000;  // as in a suite

std::vector<TypedRegex> compile(const char* flag, const std::vector<std::string>& patterns) {
  std::vector<TypedRegex> out;
  for (const std::string& pattern : patterns) {
    try {
      out.emplace_back(pattern);
    } catch (const UsageError& error) { throw UsageError(fmt::format("{} '{}': {}", flag, pattern.substr(0, 200), error.what())); }
  }
  return out;
}

void append(std::vector<PlannedCase>& plan, const std::string& suite, const std::vector<SuiteCase>& cases) {
  for (const SuiteCase& suite_case : cases) plan.push_back({suite_case, suite});
}

}  // namespace

bool in_shard(const Case& c, int index, int count) {
  const uint64_t hash = std::stoull(case_id(c).substr(1), nullptr, 16);
  return hash % static_cast<uint64_t>(count) == static_cast<uint64_t>(index - 1);
}

std::vector<SuiteCase> with_set(const std::vector<SuiteCase>& cases, const std::string& key_values) {
  const size_t equal = key_values.find('=');
  if (equal == std::string::npos || equal == 0) throw UsageError(fmt::format("--set {}: want key=v1,v2", key_values));
  const std::string key = key_values.substr(0, equal);
  std::vector<std::string> values;
  for (size_t from = equal + 1; from <= key_values.size();) {
    const size_t comma = std::min(key_values.find(',', from), key_values.size());
    values.push_back(key_values.substr(from, comma - from));
    from = comma + 1;
  }
  std::vector<SuiteCase> out;
  for (const SuiteCase& old : cases) {
    // The short line, so that keys whose default follows another key follow it here too.
    std::string line;
    const std::string text = to_line(old.c);
    for (size_t from = 0; from < text.size();) {
      const size_t space = std::min(text.find(' ', from), text.size());
      const std::string token = text.substr(from, space - from);
      if (token.substr(0, token.find('=')) != key) line += (line.empty() ? "" : " ") + token;
      from = space + 1;
    }
    for (const std::string& value : values) {
      SuiteCase changed = old;
      try {
        changed.c = parse_line(line + " " + key + "=" + value);
      } catch (const UsageError& e) { throw UsageError(fmt::format("--set {}: {}", key_values, e.what())); }
      out.push_back(std::move(changed));
    }
  }
  return out;
}

std::vector<PlannedCase> plan_cases(const Options& options) {
  std::vector<PlannedCase> plan;
  for (const std::string& name : options.suites) append(plan, name, load_suite(name).cases);
  for (const std::string& path : options.cases_files) {
    const Suite suite = load_suite_file(path);  // once: it may be a pipe
    append(plan, suite.name, suite.cases);
  }
  for (const std::string& line : options.case_lines) {
    try {
      SuiteCase suite_case;
      suite_case.c = parse_line(line);
      plan.push_back({suite_case, ""});
    } catch (const UsageError& e) { throw UsageError(fmt::format("--case '{}': {}", line, e.what())); }
  }
  if (options.suites.empty() && options.cases_files.empty() && options.case_lines.empty()) append(plan, "quick", load_suite("quick").cases);

  std::set<std::string> set_keys;
  for (const std::string& set : options.sets) {
    if (const std::string key = set.substr(0, set.find('=')); !set_keys.insert(key).second)
      throw UsageError(fmt::format("--set {}: {} is set twice; its values stand in one list, {}=v1,v2", set, key, key));
    const auto count = static_cast<int64_t>(plan.size()) * (1 + std::count(set.begin(), set.end(), ','));
    if (count > kMostCases) throw UsageError(fmt::format("--set {}: makes {} cases, more than {}", set.substr(0, 100), count, kMostCases));
    std::vector<PlannedCase> product;
    for (const PlannedCase& old : plan) append(product, old.suite, with_set({old.suite_case}, set));
    plan = std::move(product);
  }

  const std::vector<TypedRegex> keep = compile("--filter", options.filters), drop = compile("--skip", options.skips);
  const size_t before = plan.size();
  std::set<std::string> seen;
  std::erase_if(plan, [&](const PlannedCase& planned) {
    const std::string line = to_line(planned.c());
    for (const TypedRegex& regex : keep)
      if (!regex.found_in(line)) return true;
    for (const TypedRegex& regex : drop)
      if (regex.found_in(line)) return true;
    if (options.keep_case && !options.keep_case(planned.c())) return true;
    return !in_shard(planned.c(), options.shard_index, options.shard_count) || !seen.insert(case_id(planned.c())).second;
  });
  if (plan.empty()) throw NothingMatched(fmt::format("no case is left of {}: look at --filter, --skip and --shard", before));
  return plan;
}

const char* without_cuda() {
  const auto all = kernels();
  const bool any = std::any_of(all.begin(), all.end(), [](const KernelEntry& entry) { return entry.kernel->device != SMLA_DEVICE_CPU; });
  return any ? "" : ": this build has no CUDA, kernels for a GPU are not in it";
}

std::vector<Candidate> choose_kernels(const std::vector<Candidate>& all, const std::vector<std::string>& globs) {
  std::vector<Candidate> chosen;
  for (const std::string& glob : globs) {
    bool matched = false;
    for (const Candidate& candidate : all) matched |= fnmatch(glob.c_str(), candidate.info.name.c_str(), 0) == 0;
    if (!matched && glob.find_first_of("*?[") == std::string::npos) {
      std::vector<std::string_view> names;
      for (const Candidate& candidate : all) names.push_back(candidate.info.name);
      const std::string near = nearest(glob, names.data(), names.size());
      throw UsageError(
          fmt::format("--kernel: no kernel is called '{}'; {}", glob,
                      near.empty() ? fmt::format("smla list kernels shows all{}", without_cuda()) : fmt::format("did you mean '{}'?", near)));
    }
  }
  for (const Candidate& candidate : all)
    for (const std::string& glob : globs)
      if (fnmatch(glob.c_str(), candidate.info.name.c_str(), 0) == 0) {
        chosen.push_back(candidate);
        break;
      }
  if (chosen.empty()) throw NothingMatched(fmt::format("no kernel matches --kernel (smla list kernels){}", without_cuda()));
  return chosen;
}

}  // namespace smla
