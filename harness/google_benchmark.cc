// SPDX-License-Identifier: Apache-2.0
#include "harness/google_benchmark.h"

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>

#include "cases/words.h"

namespace smla {
namespace {

int theirs = -1;  // where stdout led, once it is left to Google Benchmark

/// Google Benchmark's JSON as text, and the format of theirs that the user asked for on stdout. (Where their library writes the file, a full disk
/// goes unnoticed, and a name that cannot be opened ends the process.)
class JsonText : public benchmark::BenchmarkReporter {
 public:
  explicit JsonText(bool shown) : shown_(shown ? benchmark::CreateDefaultDisplayReporter() : nullptr) {
    json_.SetOutputStream(&text_);
    if (shown_) shown_->SetOutputStream(&shown_text_);
  }
  bool ReportContext(const Context& context) override { return json_.ReportContext(context) && (!shown_ || shown_->ReportContext(context)); }
  void ReportRuns(const std::vector<Run>& runs) override {
    json_.ReportRuns(runs);
    if (shown_) shown_->ReportRuns(runs);
  }
  void Finalize() override {
    json_.Finalize();
    if (shown_) shown_->Finalize();
  }
  std::string text() const { return text_.str(); }
  std::string shown_text() const { return shown_text_.str(); }

 private:
  std::ostringstream text_, shown_text_;
  benchmark::JSONReporter json_;
  benchmark::BenchmarkReporter* shown_;  // theirs
};

}  // namespace

std::string benchmark_name(const std::string& kernel, const std::string& timing, bool cold, const Case& c) {
  return fmt::format("{} {} {} {}", kernel, timing, cold ? "cold" : "warm", to_line(c));
}

NameFilter::NameFilter(const std::string& text) : negative_(text.starts_with('-')), all_(text.empty() || text == "all") {
  if (all_) return;
  try {
    regex_.emplace(text.substr(negative_ ? 1 : 0));
  } catch (const UsageError& error) { throw UsageError(fmt::format("--benchmark_filter '{}': {}", text, error.what())); }
}

void refuse_bench_flags(const Options& options) {
  NameFilter{options.benchmark_filter};
  if (!options.benchmark_out.empty()) refuse_unwritable(options.benchmark_out);
}

void leave_stdout_to_theirs(const Options& options) {
  if (options.benchmark_format == BenchmarkFormat::console) return;
  theirs = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (theirs < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) throw UsageError("cannot leave stdout to Google Benchmark: no descriptor is free");
}

void report_to_google_benchmark(const Options& options, const std::string& folder, const std::vector<ThroughputRow>& rows) {
  benchmark::ClearRegisteredBenchmarks();
  for (const ThroughputRow& row : rows) {
    const auto tell = [&row](benchmark::State& state) {
      for (auto _ : state) {  // exactly once
        static_cast<void>(_);
        state.SetIterationTime(row.time_us_median.value_or(0) / 1e6);
      }
      for (const auto& [name, value] : std::initializer_list<std::pair<const char*, Measure>>{
               {"q1_us", row.time_us_q1}, {"q3_us", row.time_us_q3}, {"tflops", row.tflops}, {"gbps_gathered", row.gbps_gathered}})
        if (value) state.counters[name] = *value;
      if (row.status != Status::pass) state.SkipWithError(row.detail.c_str());
    };
    benchmark::RegisterBenchmark(benchmark_name(row.kernel, row.timing, row.cache == "cold", row.c).c_str(), tell)
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  constexpr const char* kFormats[] = {"console", "json", "csv"};
  std::vector<std::string> words{"smla", fmt::format("--benchmark_format={}", kFormats[static_cast<size_t>(options.benchmark_format)])};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  benchmark::Initialize(&argc, argv.data());
  JsonText json(theirs >= 0);
  benchmark::RunSpecifiedBenchmarks(&json);
  if (theirs >= 0) {
    std::fflush(stdout);
    dup2(theirs, STDOUT_FILENO);
    std::fputs(json.shown_text().c_str(), stdout);
    std::fflush(stdout);  // what goes wrong is told at the end, as for any text
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  write_text_file(options.benchmark_out.empty() ? folder + "/benchmark.json" : options.benchmark_out, json.text());
}

}  // namespace smla
