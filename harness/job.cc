// SPDX-License-Identifier: Apache-2.0
#include "harness/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "harness/checks.h"
#include "harness/exit_status.h"
#include "harness/progress.h"
#include "harness/python/python_worker.h"
#include "harness/rerun.h"
#include "harness/worker/hash.h"
#include "reports/env.h"
#include "reports/report_file.h"
#include "reports/sha256.h"
#include "reports/text.h"

namespace smla {
namespace {

/// "cpu" or "cuda": a report is of one device. Throws CannotStart if the chosen kernels need a GPU and there is none.
std::string device_of(const std::vector<Candidate>& kernels, const Session& session) {
  for (const Candidate& kernel : kernels)
    if (kernel.info.device != kernels.front().info.device)
      throw UsageError(fmt::format("--kernel: '{}' is for {}, '{}' for {}: a report is of one device, choose those of one at a time",
                                   kernels.front().info.name, kernels.front().info.device, kernel.info.name, kernel.info.device));
  const std::string device = kernels.empty() ? "cpu" : kernels.front().info.device;
  if (device == "cuda" && !session.gpu())
    throw CannotStart(
        fmt::format("'{}' needs a GPU: {}. The CPU kernels run everywhere: --kernel 'cpu_*'", kernels.front().info.name, session.why_no_gpu()));
  return device;
}

Common describe_run(const std::string& device, const Session& session) {
  Common run;
  run.tool_version = build_info().tool_version;
  run.git_commit = build_info().git_commit;
  run.git_dirty = build_info().git_dirty;
  const Machine here = machine();
  run.arch = "cpu_x86_64";
  run.device_name = here.cpu_model;
  run.host = here.host;
  if (device != "cuda") return run;
  const GpuInfo& gpu = *session.gpu();
  run.arch = fmt::format("sm_{}", gpu.cc);
  run.device_name = gpu.name;
  run.gpu_uuid = gpu.uuid;
  run.sm_count = gpu.sm_count;
  if (gpu.power_limit_w > 0) run.power_limit_w = gpu.power_limit_w;
  if (!gpu.ecc.empty()) run.ecc = gpu.ecc == "on";
  run.driver_version = gpu.driver_version;
  run.cuda_version = gpu.cuda_version;
  return run;
}

std::string fresh_run_id(const std::string& started_utc) {
  std::string id;
  for (char c : started_utc)
    if (c != '-' && c != ':') id += c;
  return id + fmt::format("-{}", getpid());
}

/// The names of a list in its order, each once, `|` between them.
template <class Items, class Name>
std::string joined(const Items& items, Name&& name) {
  std::vector<std::string> names;
  for (const auto& item : items)
    if (const std::string next = name(item); std::find(names.begin(), names.end(), next) == names.end()) names.push_back(next);
  return fmt::format("{}", fmt::join(names, "|"));
}

RunIdentity identity_of(const Job& job) {
  const Common& run = job.run;
  const std::string program = read_text_file(program_file());
  std::string cases;
  for (const PlannedCase& planned : job.plan)
    cases += fmt::format("{} {} {}\n", case_id(planned.c()), planned.suite_case.expect, fmt::join(planned.suite_case.tags, " "));
  RunIdentity is;
  is.verb = job.options.verb;
  is.binary = fmt::format("{} {}{} {:016x}", run.tool_version, run.git_commit.substr(0, 12), run.git_dirty.value_or(false) ? " (changed)" : "",
                          hash_bytes(program.data(), static_cast<int64_t>(program.size())));
  is.plugin = run.plugin_sha;
  is.suite = joined(job.plan, [](const PlannedCase& planned) { return planned.suite.empty() ? "--case" : planned.suite; });
  is.cases = fmt::format("{} cases, {}", job.plan.size(), sha256(cases).substr(0, 16));
  is.kernels = joined(job.kernels, [](const Candidate& kernel) { return kernel.info.name; });
  is.device = fmt::format("{}, {}", run.arch, run.device_name);
  if (!run.gpu_uuid.empty())
    is.device += fmt::format(", {}, {:g} W, ecc {}, driver {}", run.gpu_uuid, run.power_limit_w.value_or(0), run.ecc.value_or(false) ? "on" : "off",
                             run.driver_version);
  is.flags = asked_flags(job.options);
  return is;
}

/// Tells of kernels that a suite expects to decline and that are not here: another build may have them, or the name is wrong.
void tell_of_unknown_kernels(const std::vector<PlannedCase>& plan, const std::vector<Candidate>& all) {
  constexpr std::string_view kUnsupported = "unsupported:";
  std::set<std::string> globs;
  for (const PlannedCase& planned : plan)
    if (planned.suite_case.expect.starts_with(kUnsupported)) globs.insert(planned.suite_case.expect.substr(kUnsupported.size()));
  for (const std::string& glob : globs)
    if (std::none_of(all.begin(), all.end(), [&](const Candidate& kernel) { return fnmatch(glob.c_str(), kernel.info.name.c_str(), 0) == 0; }))
      tell(fmt::format("expect = 'unsupported:{}': no kernel here is called so", glob));
}

/// SHA-256 of the plug-in or the Python file; of several, of their sums in order. "" where all kernels are built in.
std::string sha_of_own_kernels(const Options& options) {
  std::vector<std::string> sums;
  if (!options.plugin.empty()) sums.push_back(sha256_of_file(options.plugin));
  for (const std::string& spec : options.pythons) sums.push_back(sha256_of_file(python_file(spec)));
  return sums.empty() ? "" : sums.size() == 1 ? sums[0] : sha256(fmt::format("{}", fmt::join(sums, "")));
}

/// OUT/<arch> of the run to be resumed. Nothing is made where there is none.
std::string resumed_folder(const Options& options, const std::string& arch) {
  const std::string folder = (std::filesystem::path(options.resume) / arch).string();
  if (!std::filesystem::is_directory(folder)) throw UsageError(fmt::format("--resume {}: {} is not there", options.resume, folder));
  return folder;
}

/// Refuses what could not be continued once hours have passed, and cuts what a killed run left torn at the end of its files.
void settle(const std::string& folder) {
  for (const char* name : {"env.json", "summary.md", "junit.xml", "benchmark.json", "peaks.csv"}) {
    const std::filesystem::path path = fmt::format("{}/{}", folder, name);
    if (std::filesystem::is_directory(path)) throw UsageError(fmt::format("{} is a folder where a file should be", path.string()));
    if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
      throw UsageError(fmt::format("{} is no regular file", path.string()));
  }
  const auto settle_one = [&]<class Row>(Row) {
    const std::string path = fmt::format("{}/{}", folder, file_name<Row>());
    if (!std::filesystem::exists(path)) return;
    ReportWriter<Row> cut(folder);
    read_report<Row>(path);
  };
  settle_one(AccuracyRow{});
  settle_one(ThroughputRow{});
  settle_one(SampleRow{});
}

}  // namespace

std::string report_folder(const Options& options, const std::string& arch) {
  const std::filesystem::path folder = std::filesystem::path(options.out) / arch;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw UsageError(fmt::format("--out {}: cannot make {}: {}", options.out, folder.string(), error.message()));
  return folder.string();
}

Job::Job(const Options& o)
    : options(o),
      checks(parse_checks(o.checks)),
      plan(plan_cases(o)),
      session(o),
      kernels(session.chosen()),
      run(describe_run(device_of(kernels, session), session)),
      folder(o.resume.empty() ? report_folder(o, run.arch) : resumed_folder(o, run.arch)),
      lock(folder) {
  tell_of_unknown_kernels(plan, session.all());
  run.plugin_sha = sha_of_own_kernels(o);
  settle(folder);
  if (o.resume.empty()) {
    start.started_utc = utc_now();
    start.run_id = fresh_run_id(start.started_utc);
    start.command = o.command;
    start.identity = identity_of(*this);
  } else {
    const auto refuse = [&](const std::string& why) { return UsageError(fmt::format("--resume {}: {}", o.resume, why)); };
    try {
      start = read_run_start(folder);
    } catch (const UsageError& error) { throw refuse(error.what()); }
    if (const std::string other = difference(start.identity, identity_of(*this)); !other.empty())
      throw refuse(fmt::format("that run was of {}; run without --resume for a report of its own", other));
    ++start.resumed;
    earlier = Earlier(folder, start.run_id, o.retry);
  }
  run.run_id = start.run_id;
  run.started_utc = start.started_utc;
  begin_run(folder, start);
}

}  // namespace smla
