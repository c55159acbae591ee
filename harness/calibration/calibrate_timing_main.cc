// SPDX-License-Identifier: Apache-2.0
// smla_calibrate_timing measure: samples of one kernel over given cases, run after run, beside the same kernel followed by a delay of 1, 2, 3 and 5 %
// of its time. Each is followed by a kernel that waits, for 0 ns where there is no delay, so that the delay alone differs. smla_calibrate_timing
// tables: what compare and gate make of them: false verdicts, and how often a delay is seen.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>

#include "harness/calibration/timing_calibration.h"
#include "harness/cuda/cuda_device.h"
#include "harness/cuda/probes.h"
#include "harness/worker/engine.h"
#include "kernels/door.h"
#include "kernels/registry.h"
#include "reports/env.h"
#include "reports/statistics.h"
#include "reports/text.h"

namespace smla {
namespace {

constexpr double kDelays[] = {0, 0, 0.01, 0.02, 0.03, 0.05};  // the first two are the A/A pair

/// A kernel followed by a delay.
struct Delayed {
  smla_kernel kernel;  // first: `self` is this
  const smla_kernel* base;
  std::string name;
  double delay_us = 0;
};
const Delayed& of(const smla_kernel* self) { return *reinterpret_cast<const Delayed*>(self); }

void wait_on_host(double us) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() < us) {}
}

std::unique_ptr<Delayed> delayed(const smla_kernel& base, int index) {
  auto d = std::make_unique<Delayed>(Delayed{base, &base, fmt::format("{}.{}", base.name, index), 0});
  smla_kernel& k = d->kernel;
  k.name = d->name.c_str();
  k.contract = [](const smla_kernel* self, const smla_problem* p, smla_contract* c) {
    return of(self).base->contract ? of(self).base->contract(of(self).base, p, c) : 0;
  };
  k.supports = [](const smla_kernel* self, const smla_problem* p, char* reason, uint64_t n) {
    return of(self).base->supports(of(self).base, p, reason, n);
  };
  k.workspace_bytes = [](const smla_kernel* self, const smla_problem* p) { return of(self).base->workspace_bytes(of(self).base, p); };
  k.prepare = [](const smla_kernel* self, const smla_problem* p, const smla_buffers* b, void* w, void* s) {
    return of(self).base->prepare ? of(self).base->prepare(of(self).base, p, b, w, s) : 0;
  };
  k.launch = [](const smla_kernel* self, const smla_problem* p, const smla_buffers* b, void* w, void* stream) {
    const int status = of(self).base->launch(of(self).base, p, b, w, stream);
    if (stream) enqueue_delay(stream, of(self).delay_us);
    else wait_on_host(of(self).delay_us);
    return status;
  };
  k.last_error = [](const smla_kernel* self, char* text, uint64_t n) {
    if (of(self).base->last_error) of(self).base->last_error(of(self).base, text, n);
  };
  k.splits_used = nullptr;
  return d;
}

int measure(const std::vector<std::string>& cases, const std::string& kernel, int gpu, int runs, int samples, const std::string& out) {
  const smla_kernel& base = find_kernel(kernel);
  std::vector<std::unique_ptr<Delayed>> owned;
  std::vector<const smla_kernel*> kernels;
  for (size_t i = 0; i < std::size(kDelays); ++i) kernels.push_back(&owned.emplace_back(delayed(base, static_cast<int>(i)))->kernel);
  std::string device = machine().cpu_model, why;
  if (GpuInfo info; base.device == SMLA_DEVICE_CUDA) {
    if (!describe_gpu(gpu, info, why)) throw UsageError(why);
    device = info.name;
  }
  std::vector<CalibrationLane> all;
  for (const std::string& line : cases) {
    TimeRequest request;
    request.c = parse_line(line);
    request.min_samples = samples;
    request.max_noise = 1e9;  // so many and no more
    request.max_time_s = 10;
    for (const smla_kernel* k : kernels) request.lanes.push_back({Lane::Work::kernel, k->name, false, true});
    for (int run = -1; run < runs; ++run) {  // the first tells how long the delays are to be
      Engine engine(kernels, gpu);           // new each time: memory of its own
      const TimeReply reply = engine.time(request);
      if (reply.status != Status::pass) throw UsageError(reply.detail);
      for (size_t i = 0; i < kernels.size(); ++i) {
        const LaneReply& lane = reply.lanes[i];
        if (lane.status != Status::pass) throw UsageError(fmt::format("{}: {}", kernels[i]->name, lane.detail));
        if (run < 0) owned[i]->delay_us = kDelays[i] * median(reply.lanes[0].time_us);
        else all.push_back({device, to_line(request.c), kernel, static_cast<int>(getpid()), run, kDelays[i], i == 1, lane.time_us});
      }
    }
    fmt::print("{}: {} runs of {} samples, undelayed {:.2f} us\n", line, runs, samples, median(all.back().time_us) / (1 + all.back().delay_frac));
  }
  std::string text = calibration_csv(all);
  if (std::filesystem::exists(out)) text = read_text_file(out) + text.substr(text.find('\n') + 1);
  write_text_file(out, text);
  return 0;
}

int tables(const std::vector<std::string>& files, const std::string& folder) {
  std::vector<CalibrationLane> lanes;
  for (const std::string& file : files)
    for (CalibrationLane& lane : read_calibration(file)) lanes.push_back(std::move(lane));
  const Table aa = aa_table(lanes), delays = delay_table(lanes);
  fmt::print("{}\n{}", aa.text(), delays.text());
  if (folder.empty()) return 0;
  write_text_file(folder + "/timing_aa.csv", aa.csv());
  write_text_file(folder + "/timing_delay.csv", delays.csv());
  return 0;
}

int calibrate(int argc, char** argv) {
  CLI::App app("how often compare and gate are wrong, and what they see", argv[0]);
  std::vector<std::string> cases, files;
  std::string kernel = "cpu_split", out = "timing_samples.csv", update;
  int gpu = 0, runs = 10, samples = 30;
  CLI::App* measuring = app.add_subcommand("measure", "take samples, appended to a file");
  measuring->add_option("--case", cases, "one case line; repeatable")->required()->allow_extra_args(false);
  measuring->add_option("--kernel", kernel, "a built-in kernel");
  measuring->add_option("--gpu", gpu, "of CUDA kernels");
  measuring->add_option("--runs", runs, "of each case, each with memory of its own")->check(CLI::PositiveNumber);
  measuring->add_option("--samples", samples, "of each lane in a run")->check(CLI::PositiveNumber);
  measuring->add_option("--out", out, "the samples")->type_name("FILE.csv");
  CLI::App* telling = app.add_subcommand("tables", "verdicts of those samples");
  telling->add_option("files", files, "what `measure` wrote")->required();
  telling->add_option("--update", update, "write timing_aa.csv and timing_delay.csv there too: reports/data")->type_name("DIR");
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  return measuring->parsed() ? measure(cases, kernel, gpu, runs, samples, out) : tables(files, update);
}

}  // namespace
}  // namespace smla

int main(int argc, char** argv) {
  try {
    return smla::calibrate(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "smla_calibrate_timing: {}\n", error.what());
    return 3;
  }
}
