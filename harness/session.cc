// SPDX-License-Identifier: Apache-2.0
#include "harness/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cases/words.h"
#include "harness/cuda/gpu_probe.h"
#include "harness/exit_status.h"
#include "kernels/registry.h"

namespace smla {
namespace {

constexpr double kLeastLoad_s = 10;  // for kernels of the user's own to come up, however short --case-timeout is: an interpreter and its imports

}  // namespace

Session::Session(const Options& options) : options_(options) {
  const auto start = [&](WorkerOptions worker, const std::string& flag) {
    worker.gpu = gpu_ordinal();
    workers_.push_back(std::make_unique<Worker>(worker));
    for (const KernelInfo& info : workers_.back()->list()) {
      for (const Candidate& other : all_)
        if (other.info.name == info.name) throw UsageError(fmt::format("{}: kernel '{}' has the name of another kernel", flag, info.name));
      all_.push_back({info, workers_.back().get()});
    }
  };
  const double load_s = std::max(kLeastLoad_s, options.case_timeout_s);
  if (!options.plugin.empty()) start({.plugin = options.plugin, .load_s = load_s}, "--plugin " + options.plugin);
  for (const std::string& python : options.pythons) start({.python = python, .load_s = load_s}, "--python " + python);
  own_kernels_ = all_.size();
  start({}, "built in");
  if (all_.empty()) throw CannotStart("no kernel is here: neither built in nor in a plug-in");
}

const std::optional<GpuInfo>& Session::gpu() const {
  if (!std::exchange(gpu_asked_, true) && std::any_of(all_.begin(), all_.end(), [](const Candidate& c) { return c.info.device == "cuda"; }))
    gpu_ = probe_gpu(gpu_ordinal(), why_no_gpu_);
  return gpu_;
}

int64_t Session::workers_peak_bytes() const {
  return std::accumulate(workers_.begin(), workers_.end(), int64_t{0}, [](int64_t sum, const auto& worker) { return sum + worker->peak_bytes(); });
}

RunReply run_all_rows(const Candidate& candidate, const Inputs& in, const Options& options) {
  RunRequest request;
  request.c = in.c;
  request.kernel = candidate.info.name;
  request.threads = options.threads;
  request.deadline_s = options.case_timeout_s;
  request.tokens.resize(static_cast<size_t>(in.tokens()));
  std::iota(request.tokens.begin(), request.tokens.end(), 0);
  return candidate.worker->run(request);
}

std::vector<Candidate> Session::chosen() const { return chosen(options_.kernels.empty() && own_kernels_ == 0 && gpu()); }

std::vector<Candidate> Session::chosen(bool cuda) const {
  if (!options_.kernels.empty()) return choose_kernels(all_, options_.kernels);
  if (own_kernels_ > 0) return {all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(own_kernels_)};
  std::vector<Candidate> plain = all_;
  const std::vector<const smla_kernel*> built_in = kernels(KernelGroup::built_in);
  std::erase_if(plain, [&](const Candidate& candidate) {
    return candidate.info.device != (cuda ? "cuda" : "cpu") ||
           std::none_of(built_in.begin(), built_in.end(), [&](const smla_kernel* kernel) { return candidate.info.name == kernel->name; });
  });
  return plain;
}

}  // namespace smla
