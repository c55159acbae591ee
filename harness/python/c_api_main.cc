// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/python/python_worker.h"
#include "harness/python/smla.h"
#include "harness/rerun.h"
#include "harness/rows.h"
#include "harness/sweep.h"
#include "kernels/contract.h"
#include "kernels/plugin.h"
#include "reports/outcome.h"
#include "reports/report_file.h"
#include "reports/run_files.h"

namespace smla {
namespace {

thread_local std::string g_error, g_text;

/// Runs `body`; what it throws is told by smla_error(), and `failed` returned.
template <class R, class F>
R guarded(R failed, F&& body) {
  try {
    return body();
  } catch (const std::exception& error) { g_error = error.what(); } catch (...) {
    g_error = "an exception of unknown type";
  }
  return failed;
}

nlohmann::json columns(const AccuracyRow& row) {
  const std::vector<std::string> names = header<AccuracyRow>(), cells = to_cells(row);
  nlohmann::json object = nlohmann::json::object();
  for (size_t i = 0; i < names.size(); ++i) object[names[i]] = cells[i];
  return object;
}

}  // namespace
}  // namespace smla

using namespace smla;

struct smla_session {
  Options options;
  std::unique_ptr<Job> job;
  std::unique_ptr<ReportWriter<AccuracyRow>> writer;
  JudgeOptions judge;
  std::map<std::string, std::string> unexpected;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

uint32_t smla_api_version(void) { return SMLA_API_VERSION; }
const char* smla_error(void) { return g_error.c_str(); }

int smla_contract_of(const char* words, smla_contract* out) {
  return guarded(1, [&] {
    if (out->struct_size != sizeof *out) throw UsageError("smla_contract_of: struct_size is not that of this library");
    Contract contract = parse_contract(words);
    if (contract.p == Rounding::exact) contract.p = Rounding::fp32;  // the door's 0 means q's type
    *out = to_c(contract);
    return 0;
  });
}

int smla_worker(smla_load_fn load, int gpu) {
  return guarded(3, [&] {
    return serve_worker(gpu, [&] {
      char text[4096] = "";
      const smla_library* library = load(text, sizeof text);
      if (library == nullptr) throw UsageError(text);
      const Plugin plugin(library, "of Python");
      return std::vector<const smla_kernel*>(plugin.kernels().begin(), plugin.kernels().end());
    });
  });
}

smla_session* smla_open(int argc, const char* const* argv) {
  return guarded(static_cast<smla_session*>(nullptr), [&] {
    auto session = std::make_unique<smla_session>();
    std::vector<char*> words{const_cast<char*>("check")};
    for (int i = 0; i < argc; ++i) words.push_back(const_cast<char*>(argv[i]));
    if (!parse_flags("check", kChecking | kRunning, session->options, static_cast<int>(words.size()), words.data()))
      throw UsageError("--help opens no session");
    session->options.program = shell_quote(program_file());  // the process is Python
    session->job = std::make_unique<Job>(session->options);
    session->writer = std::make_unique<ReportWriter<AccuracyRow>>(session->job->folder);
    session->judge = judge_options(*session->job, session->job->checks);
    return session.release();
  });
}

int64_t smla_case_count(const smla_session* session) { return static_cast<int64_t>(session->job->plan.size()); }

const char* smla_case_line(const smla_session* session, int64_t i) {
  return guarded(static_cast<const char*>(nullptr), [&] {
    g_text = to_line(session->job->plan.at(static_cast<size_t>(i)).c());
    return g_text.c_str();
  });
}

const char* smla_check_case(smla_session* session, int64_t i) {
  return guarded(static_cast<const char*>(nullptr), [&] {
    const PlannedCase& planned = session->job->plan.at(static_cast<size_t>(i));
    const CaseResult result = judge_case(planned, session->job->kernels, session->judge);
    nlohmann::json answer = nlohmann::json::array();
    for (const PairResult& pair : result.pairs) {
      const std::vector<AccuracyRow> rows = accuracy_rows(session->job->run, planned, result, pair);
      session->writer->append(rows);
      if (!pair.expected.empty()) session->unexpected[pair_key(rows.front())] = pair.expected;
      nlohmann::json of_pair = {{"kernel", pair.kernel},
                                {"status", std::string(name_of(pair.status()))},
                                {"red", pair.red},
                                {"repro", pair.repro},
                                {"detail", pair.expected.empty() ? pair.decision.detail() : pair.expected + "; " + pair.decision.detail()}};
      for (const AccuracyRow& row : rows) of_pair[std::string(name_of(row.tensor))] = columns(row);
      answer.push_back(std::move(of_pair));
    }
    g_text = answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return g_text.c_str();
  });
}

void smla_close(smla_session* session) {
  const std::unique_ptr<smla_session> owned(session);
  if (!owned) return;
  guarded(0, [&] {
    const Job& job = *owned->job;
    const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - owned->start).count();
    write_run_files(job.folder,
                    {job.run.run_id, static_cast<int64_t>(job.plan.size() * job.kernels.size()), owned->unexpected, job.start.command, wall_s});
    return 0;
  });
}
