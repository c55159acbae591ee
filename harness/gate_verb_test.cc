// SPDX-License-Identifier: Apache-2.0
// The verbs compare and gate as called: files in, files and exit status out. The rules themselves: reports/gate_test.cc, reports/compare_test.cc.
#include <filesystem>

#include "harness/exit_status.h"
#include "harness/verbs.h"
#include "reports/report_file.h"
#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

namespace {

struct Folders {
  std::string top;
  Folders() {
    char name[] = "/tmp/smla_gate_verb_test_XXXXXX";
    top = ::mkdtemp(name);
    for (const char* sub : {"/baselines/sm_90", "/out/sm_90"}) std::filesystem::create_directories(top + sub);
  }
  ~Folders() { std::filesystem::remove_all(top); }
};

AccuracyRow accuracy(Status status = Status::pass) {
  AccuracyRow row;
  row.arch = "sm_90";
  row.c = parse_line("decode b=1 s_q=1 h_q=8 s_kv=256 topk=64");
  row.kernel = "k";
  row.status = status;
  return row;
}

ThroughputRow timing(const char* kernel, double median_us) {
  ThroughputRow row;
  row.arch = "sm_90";
  row.c = parse_line("decode b=1 s_q=1 h_q=8 s_kv=256 topk=64");
  row.kernel = kernel;
  row.timing = "event";
  row.cache = "cold";
  row.samples = 50;
  row.time_us_q1 = median_us * 0.998;
  row.time_us_median = median_us;
  row.time_us_q3 = median_us * 1.002;
  return row;
}

void write(const std::string& folder, const AccuracyRow& row, const std::vector<ThroughputRow>& times) {
  for (const char* file : {"/accuracy.csv", "/throughput.csv"}) std::filesystem::remove(folder + file);
  ReportWriter<AccuracyRow>(folder).append(row);
  ReportWriter<ThroughputRow>(folder).append(times);
}

int smla_says(std::vector<std::string> words) {
  words.insert(words.begin(), "smla");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return smla_main(static_cast<int>(words.size()), argv.data());
}

}  // namespace

TEST_CASE("gate: exit status, files, and an update") {
  const Folders folders;
  const std::string base = folders.top + "/baselines/sm_90", out = folders.top + "/out", run = out + "/sm_90";
  write(base, accuracy(), {timing("k", 100)});
  write(run, accuracy(), {timing("k", 101)});
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kAllGreen);
  CHECK(smla_says({"gate", "--baseline", base + "/", "--out", out}) == kAllGreen);
  CHECK(smla_says({"gate", "--baseline", base, "--out", run}) == kAllGreen);

  write(run, accuracy(), {timing("k", 105)});
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--markdown", out + "/gate.md", "--junit", out + "/gate.xml"}) == kThroughputRed);
  CHECK_THAT(read_text_file(out + "/gate.md"), ContainsSubstring("# Gate red: throughput"));
  CHECK_THAT(read_text_file(out + "/gate.xml"), ContainsSubstring("<failure type=\"slower\""));
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--max-loss", "0.1"}) == kAllGreen);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--accuracy-only"}) == kAllGreen);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--update-baseline"}) == kAllGreen);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kAllGreen);

  write(run, accuracy(Status::fail), {timing("k", 105)});
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kCorrectnessRed);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--update-baseline"}) == kUsage);
  write_text_file(base + "/known_issues.toml", "[[issue]]\nkernel = \"k\"\nreason = \"being mended\"\n");
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kAllGreen);
  write(run, accuracy(), {timing("k", 105)});
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kCorrectnessRed);  // the issue passes: remove it
}

TEST_CASE("gate: bad input is exit status 3, nothing to judge is 4") {
  const Folders folders;
  const std::string base = folders.top + "/baselines/sm_90", out = folders.top + "/out", run = out + "/sm_90";
  CHECK(smla_says({"gate"}) == kUsage);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kUsage);  // no files
  write(base, accuracy(), {timing("k", 100)});
  { ReportWriter<AccuracyRow> empty(run); }
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kNothingMatched);
  ReportWriter<AccuracyRow>(run).append(accuracy());
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kUsage);  // the baseline has times, the run has none
  ThroughputRow other = timing("k", 100);
  other.power_limit_w = 450;
  write(run, accuracy(), {other});
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kUsage);
  write(run, accuracy(), {timing("k", 100)});
  write_text_file(run + "/throughput.csv", "");
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kUsage);
  write(run, accuracy(), {timing("k", 100)});
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--markdown", "/proc/nowhere/gate.md"}) == kUsage);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--max-los", "1"}) == kUsage);
}

TEST_CASE("compare: two reports, or two kernels of one") {
  const Folders folders;
  const std::string base = folders.top + "/baselines/sm_90", run = folders.top + "/out/sm_90";
  write(base, accuracy(), {timing("k", 100)});
  write(run, accuracy(), {timing("k", 90), timing("other", 120)});
  CHECK(smla_says({"compare", base, run + "/throughput.csv", "--csv", folders.top + "/c.csv", "--markdown", folders.top + "/c.md"}) == kAllGreen);
  CHECK_THAT(read_text_file(folders.top + "/c.csv"), ContainsSubstring(",100,90,0.9,"));
  CHECK_THAT(read_text_file(folders.top + "/c.csv"), ContainsSubstring(",faster,"));
  CHECK_THAT(read_text_file(folders.top + "/c.csv"), ContainsSubstring(",new,"));
  CHECK_THAT(read_text_file(folders.top + "/c.md"), ContainsSubstring("1 faster, 1 new"));
  CHECK(smla_says({"compare", "k", "other", "--in", run, "--csv", folders.top + "/k.csv"}) == kAllGreen);
  CHECK_THAT(read_text_file(folders.top + "/k.csv"), ContainsSubstring("k -> other"));
  CHECK(smla_says({"compare", "k", "othr", "--in", run}) == kUsage);
  CHECK(smla_says({"compare", "k", run}) == kUsage);
  CHECK(smla_says({"compare", base}) == kUsage);
}
