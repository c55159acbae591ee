// SPDX-License-Identifier: Apache-2.0
// The verbs compare and gate as called: files in, files and exit status out. The rules themselves: reports/gate_test.cc, reports/compare_test.cc.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "harness/bench.h"
#include "harness/exit_status.h"
#include "harness/verbs/verbs.h"
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

TEST_CASE("gate and compare: the shares of several cards are one report, and are held against one baseline") {
  const Folders folders;
  const std::string base = folders.top + "/baselines/sm_90", out = folders.top + "/out";
  AccuracyRow first = accuracy(), second = accuracy();
  ThroughputRow first_time = timing("k", 100), second_time = timing("k", 200);
  second.c = second_time.c = parse_line("decode b=2 s_q=1 h_q=8 s_kv=256 topk=64");
  first.gpu_uuid = first_time.gpu_uuid = "GPU-a";
  second.gpu_uuid = second_time.gpu_uuid = "GPU-b";
  const auto shares = [&](const ThroughputRow& b) {
    std::filesystem::remove_all(out);
    for (const char* card : {"/gpu0/sm_90", "/gpu1/sm_90"}) std::filesystem::create_directories(out + card);
    write(out + "/gpu0/sm_90", first, {first_time});
    write(out + "/gpu1/sm_90", second, {b});
  };
  shares(second_time);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--update-baseline"}) == kAllGreen);
  CHECK(read_report<AccuracyRow>(base + "/accuracy.csv").rows.size() == 2);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kAllGreen);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out + "/gpu0"}) == kCorrectnessRed);  // a share alone has lost what the other has
  CHECK(smla_says({"compare", base, out}) == kAllGreen);
  shares(timing("k", 200));  // the second case is not there
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kThroughputRed);
  ThroughputRow slower = timing("k", 210), limited = second_time;
  slower.c = second_time.c;
  shares(slower);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kThroughputRed);
  limited.power_limit_w = 450;  // cards of another power limit are another device
  shares(limited);
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kUsage);
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
  CHECK(smla_says({"gate", "--baseline", base, "--out", out}) == kThroughputRed);  // the baseline has times, the run has none
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

namespace {

/// The one line that `smla` says on stderr, and its exit status.
struct Said {
  int status;
  std::string line;
};
Said said(const std::vector<std::string>& words, const std::string& file) {
  std::fflush(stderr);
  const int kept = dup(STDERR_FILENO), to = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(to, STDERR_FILENO);
  const int status = smla_says(words);
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  ::close(to), ::close(kept);
  return {status, read_text_file(file)};
}

}  // namespace

TEST_CASE("gate and compare: what cannot be compared is one line, with the file and what is wrong") {
  const Folders folders;
  const std::string base = folders.top + "/baselines/sm_90", out = folders.top + "/out", run = out + "/sm_90";
  ThroughputRow good = timing("k", 123.25), other = good;
  good.device_name = other.device_name = "Card A";
  good.power_limit_w = other.power_limit_w = 700;
  const auto edited = [&](const std::string& from, const std::string& to) {
    write(run, accuracy(), {good});
    std::string text = read_text_file(run + "/throughput.csv");
    REQUIRE(text.find(from) != text.npos);
    text.replace(text.rfind(from), from.size(), to);
    write_text_file(run + "/throughput.csv", text);
  };
  const auto refused = [&](const std::string& why) {
    for (const std::vector<std::string>& words : {std::vector<std::string>{"gate", "--baseline", base, "--out", out}, {"compare", base, run}}) {
      const Said what = said(words, folders.top + "/stderr");
      INFO(words[0] << ": " << what.line);
      CHECK(what.status == kUsage);
      CHECK_THAT(what.line, ContainsSubstring(why));
      CHECK(std::count(what.line.begin(), what.line.end(), '\n') == 1);
      CHECK(what.line.starts_with("smla: "));
    }
  };
  write(base, accuracy(), {good});

  other.device_name = "Card B";
  write(run, accuracy(), {other});
  refused("was measured on Card A (sm_90, power limit 700 W");
  other = good;
  other.power_limit_w = 500;
  write(run, accuracy(), {other});
  refused("power limit 500 W");
  other = good;
  other.ecc = true;
  write(run, accuracy(), {other});
  refused("ECC on");
  edited("\n2,", "\n7,");
  refused("throughput.csv:2: column schema_version: 7 under the header of version 2");
  edited("repro,", "repro_line,");
  refused("throughput.csv:1: column 98 is \"repro_line\", expected \"repro\"");
  edited(",123.25,", ",nan,");
  refused("throughput.csv:2: column time_us_median: \"nan\" is not a finite");
  edited(",123.25,", ",-123.25,");
  refused("column time_us_median: \"-123.25\"");
  edited(",123.25,", ",,");
  refused("column time_us_median: a passed row needs a time above 0");
  edited(",123.25,", ",0,");
  refused("column time_us_median: a passed row needs a time above 0");
  write(run, accuracy(), {good});
  write_text_file(run + "/throughput.csv", "");
  refused("throughput.csv: is empty: no header");
  // A kernel that no longer passes anything is timed nowhere: that is red, and no mistake in the command.
  std::filesystem::remove(run + "/throughput.csv");
  const Said untimed = said({"gate", "--baseline", base, "--out", out}, folders.top + "/stderr");
  CHECK(untimed.status == kThroughputRed);
  CHECK_THAT(untimed.line, ContainsSubstring("throughput.csv: nothing was timed there"));
  CHECK(said({"gate", "--baseline", base, "--out", out, "--accuracy-only"}, folders.top + "/stderr").status == kAllGreen);
  write(run, accuracy(), {good});
  SampleRow negative;
  negative.arch = "sm_90";
  negative.kernel = "k";
  ReportWriter<SampleRow>(run).append(negative);
  refused("samples.csv:2: column time_us: a sample needs a time above 0");
  std::filesystem::remove(run + "/samples.csv");

  // A baseline that nothing can fail is none.
  write(run, accuracy(), {good});
  for (const char* file : {"/accuracy.csv", "/throughput.csv"}) {
    write(base, accuracy(), {good});
    const std::string text = read_text_file(base + file);
    write_text_file(base + file, text.substr(0, text.find('\n') + 1));
    const Said empty = said({"gate", "--baseline", base, "--out", out}, folders.top + "/stderr");
    CHECK(empty.status == kUsage);
    CHECK_THAT(empty.line, ContainsSubstring(std::string(file) + ": no row of the baseline passed: nothing could be lost against it"));
  }
  write(base, accuracy(), {good});
  // Nothing in common: no comparison.
  other = good;
  other.c = parse_line("decode b=2 s_q=1 h_q=8 s_kv=256 topk=64");
  write(run, accuracy(), {other});
  const Said apart = said({"compare", base, run}, folders.top + "/stderr");
  CHECK(apart.status == kNothingMatched);
  CHECK_THAT(apart.line, ContainsSubstring("have no timed pair in common (case, kernel, timing, cache): 1 and 1 rows"));

  // One sample is no error: there is a ratio, and no verdict.
  other = good;
  other.samples = 1;
  other.time_us_median = other.time_us_q1 = other.time_us_q3 = 500;
  write(run, accuracy(), {other});
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--markdown", out + "/gate.md"}) == kAllGreen);
  CHECK_THAT(read_text_file(out + "/gate.md"), ContainsSubstring("1 samples are too few for an interval"));
  // Rows that are missing are red, not passed over.
  write(run, accuracy(), {});
  CHECK(smla_says({"gate", "--baseline", base, "--out", out, "--markdown", out + "/gate.md"}) == kThroughputRed);
  CHECK_THAT(read_text_file(out + "/gate.md"), ContainsSubstring("time_lost"));
  // Not to be written.
  write(run, accuracy(), {good});
  const Said unwritable = said({"gate", "--baseline", base, "--out", out, "--junit", "/proc/nowhere/gate.xml"}, folders.top + "/stderr");
  CHECK(unwritable.status == kUsage);
  CHECK_THAT(unwritable.line, ContainsSubstring("smla: cannot write /proc/nowhere/gate.xml"));
}

TEST_CASE("clocks that cannot be read are said once, where a GPU was timed") {
  ThroughputRow row = timing("k", 100);
  CHECK_THAT(clocks_warning(std::vector{row}), ContainsSubstring("cannot be read (no NVML)"));
  ThroughputRow read = row;
  read.sm_clock_mhz_median = 1980;
  CHECK(clocks_warning(std::vector{row, read}).empty());
  row.arch = "cpu_x86_64";
  CHECK(clocks_warning(std::vector{row}).empty());
  CHECK(clocks_warning({}).empty());
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
