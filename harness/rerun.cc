// SPDX-License-Identifier: Apache-2.0
#include "harness/rerun.h"

#include <errno.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "cases/case.h"
#include "harness/flags.h"

namespace smla {
namespace {

std::string judging_flags(const Options& options) {
  std::string text;
  for (const std::string& python : options.pythons) text += fmt::format(" --python {}", shell_quote(python));
  if (options.checks != "quick") text += fmt::format(" --checks {}", options.checks);
  if (options.oracle_rows != 0) text += fmt::format(" --oracle-rows {}", options.oracle_rows);
  if (options.determinism != Options().determinism) text += fmt::format(" --determinism {}", options.determinism);
  if (options.accept == Accept::reference) text += " --accept reference";
  if (options.threads != 0) text += fmt::format(" --threads {}", options.threads);
  return text;
}

}  // namespace

std::string shell_quote(const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string out = "'";
  for (char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

std::string started_as() { return shell_quote(program_invocation_name); }

std::string Rerun::line(const std::string& verb, const std::string& kernel, const Case& c, const std::string& more) const {
  return fmt::format("{} {} --kernel {} --case {}{}{}", program, verb, shell_quote(kernel), shell_quote(to_line(c)), more, flags);
}

Rerun rerun_of(const Options& options) {
  Rerun rerun{options.program, options.plugin.empty() ? "" : " --plugin " + shell_quote(options.plugin)};
  if (const char* python = std::getenv("SMLA_PYTHON"); python != nullptr && *python != 0 && !options.pythons.empty())
    rerun.program = fmt::format("SMLA_PYTHON={} {}", shell_quote(python), options.program);
  rerun.flags += judging_flags(options);
  if (options.gpus.size() == 1) rerun.flags += fmt::format(" --gpu {}", options.gpus[0]);
  if (options.case_timeout_s != Options().case_timeout_s) rerun.flags += fmt::format(" --case-timeout {:g}", options.case_timeout_s);
  return rerun;
}

std::string timing_flags(const Options& options) {
  const Options usual;
  std::string text;
  if (options.min_samples != usual.min_samples) text += fmt::format(" --min-samples {}", options.min_samples);
  if (options.max_noise != usual.max_noise) text += fmt::format(" --max-noise {}", share_text(options.max_noise));
  if (options.max_time_s != usual.max_time_s) text += fmt::format(" --max-time {}", options.max_time_s);
  return text;
}

std::string asked_flags(const Options& options) {
  std::string text = judging_flags(options);
  if (options.verb == "check") return text;
  const Options usual;
  if (options.cache != usual.cache) text += options.cache == CacheState::warm ? " --cache warm" : " --cache both";
  if (options.timing != usual.timing) text += options.timing == Timing::graph ? " --timing graph" : " --timing both";
  text += timing_flags(options);
  if (!options.benchmark_filter.empty()) text += " --benchmark_filter " + shell_quote(options.benchmark_filter);
  return text;
}

}  // namespace smla
