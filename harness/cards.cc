// SPDX-License-Identifier: Apache-2.0
#include "harness/cards.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cases/random.h"
#include "cases/words.h"
#include "harness/cuda/gpu_probe.h"
#include "harness/exit_status.h"

namespace smla {
namespace {

namespace fs = std::filesystem;

/// 6, 1, 2, green, and 77 only where nothing is green.
int rank(int status) {
  constexpr int kOrder[] = {kNoPass, kAllGreen, kThroughputRed, kCorrectnessRed, kSelftestFailed};
  const auto* found = std::find(std::begin(kOrder), std::end(kOrder), status);
  return static_cast<int>(found - std::begin(kOrder));  // anything else ranks above all
}

}  // namespace

void resolve_cards(Options& options) {
  if (!options.all_gpus) return;
  std::string why;
  options.gpus.clear();
  while (probe_gpu(static_cast<int>(options.gpus.size()), why)) options.gpus.push_back(static_cast<int>(options.gpus.size()));
  if (options.gpus.empty()) throw CannotStart(fmt::format("--gpu all: {}", why));
  options.all_gpus = false;
}

void cards_must_be_here(const Options& options) {
  std::string why;
  for (const int ordinal : options.gpus)
    if (!probe_gpu(ordinal, why)) throw CannotStart(fmt::format("--gpu {}: {}", ordinal, why));
}

size_t card_of(const Options& options, const Case& c) {
  if (options.gpus.size() < 2) return 0;
  return mix64(std::stoull(case_id(c).substr(1), nullptr, 16)) % options.gpus.size();  // mixed: --shard cuts by the hash itself
}

int on_each_card(const Options& all, const std::function<int(const Options&)>& work) {
  Options options = all;
  resolve_cards(options);
  if (options.gpus.size() < 2) return work(options);
  const auto folder_of = [&](int gpu) { return fmt::format("{}/gpu{}", options.out, gpu); };  // a report is of one card
  if (!options.resume.empty() && std::none_of(options.gpus.begin(), options.gpus.end(), [&](int gpu) { return fs::is_directory(folder_of(gpu)); }))
    throw UsageError(fmt::format("--resume {}: no folder gpuN of these cards is there", options.resume));
  const std::vector<PlannedCase> plan = plan_cases(options);
  int worst = kNoPass;  // of none
  for (size_t card = 0; card < options.gpus.size(); ++card) {
    if (std::none_of(plan.begin(), plan.end(), [&](const PlannedCase& planned) { return card_of(options, planned.c()) == card; })) continue;
    Options one = options;
    one.gpus = {options.gpus[card]};
    one.out = folder_of(options.gpus[card]);
    if (!one.resume.empty()) one.resume = fs::is_directory(one.out) ? one.out : "";  // a card that the run did not reach begins
    one.keep_case = [options, card](const Case& c) { return card_of(options, c) == card; };
    fmt::print("GPU {}:\n", options.gpus[card]);
    const int status = work(one);
    if (rank(status) > rank(worst)) worst = status;
    if (status > 128) break;  // interrupted
  }
  return worst;
}

}  // namespace smla
