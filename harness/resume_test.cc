// SPDX-License-Identifier: Apache-2.0
// A run that was killed, at any moment, goes on as if it had not been; a run that was another is refused.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <thread>
#include <tuple>

#include "harness/testing/program.h"
#include "reports/report_file.h"
#include "reports/sha256.h"
#include "reports/text.h"

using namespace smla;
namespace fs = std::filesystem;
using std::chrono::steady_clock;

namespace {

constexpr const char* kArch = "/cpu_x86_64";
// Every ending that such a report knows: pass, unsupported (cpu_dense), fail and crash.
const std::string kCase = " --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20'";
const std::string kQuestion = "run --kernel cpu_naive --kernel cpu_dense --kernel fake_zeros --kernel fake_aborts" + kCase +
                              " --set pattern=scattered,padded,sorted --set s_kv=90,200 --set seed=1,2 --threads 1"
                              " --cache warm --max-time 0.005 --min-samples 2 --progress none";

/// The program in the background, killed or waited for.
class Background {
 public:
  explicit Background(const std::string& words) : begun_(steady_clock::now()) {
    std::string command = "cd " + kBuild.string() + " && exec ./smla " + words + " >/dev/null 2>&1";
    const char* argv[] = {"sh", "-c", command.c_str(), nullptr};
    REQUIRE(posix_spawn(&pid_, "/bin/sh", nullptr, nullptr, const_cast<char* const*>(argv), environ) == 0);
  }
  /// Kills it at that moment of its life. False: it had ended by itself.
  bool kill_at(double seconds) {
    std::this_thread::sleep_until(begun_ + std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds)));
    kill(pid_, SIGKILL);
    return wait() == 128 + SIGKILL;
  }
  int wait() {
    if (pid_ != 0) REQUIRE(waitpid(std::exchange(pid_, 0), &status_, 0) > 0);
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  pid_t pid_ = 0;
  int status_ = 0;
  steady_clock::time_point begun_;
};

/// The cells of a report but for those that time or chance decides.
template <class Row>
std::vector<std::string> lasting(const std::string& folder) {
  static const std::regex passing(
      "run_id|started_utc|.*_ms|.*_us.*|.*_ratio|roof_.*|time_.*|samples|discarded|stop_reason|tflops|gbps_.*|tokens_per_s|speedup_.*|detail|"
      "worst_.*|.*_err_max|round|sample|calls_per_sample");
  const auto report = read_report<Row>(folder + kArch + "/" + std::string(file_name<Row>()));
  CHECK_FALSE(report.torn);
  const std::vector<std::string> columns = header<Row>();
  std::vector<std::string> rows;
  for (const Row& row : report.rows) {
    std::vector<std::string> cells = to_cells(row);
    for (size_t i = 0; i < cells.size(); ++i)
      if (std::regex_match(columns[i], passing)) cells[i].clear();
    rows.push_back(csv_line(cells));
  }
  return rows;
}

std::vector<std::string> found(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) all.push_back(at->str(1));
  return all;
}

std::string text_of(const std::string& folder, const char* file) { return read_text_file(folder + kArch + "/" + file); }

nlohmann::json env_of(const std::string& folder) { return nlohmann::json::parse(text_of(folder, "env.json")); }

void same_reports(const std::string& got, const std::string& want) {
  CHECK(lasting<AccuracyRow>(got) == lasting<AccuracyRow>(want));
  CHECK(lasting<ThroughputRow>(got) == lasting<ThroughputRow>(want));
  const auto kernels_told = [](const std::string& folder) {
    const std::string text = text_of(folder, "summary.md");
    return found(text.substr(0, text.find("## Throughput")), "(#.*|\\| (?:cpu|fake)_.*)");
  };
  CHECK(kernels_told(got) == kernels_told(want));
  for (const char* pattern : {"<testcase ([^>]*?) time=", "<testsuites? ([^>]*?) time=", "<(failure|error|skipped) "})
    CHECK(found(text_of(got, "junit.xml"), pattern) == found(text_of(want, "junit.xml"), pattern));
  CHECK(found(text_of(got, "benchmark.json"), "\"name\": (.*),") == found(text_of(want, "benchmark.json"), "\"name\": (.*),"));
  CHECK(env_of(got).at("identity") == env_of(want).at("identity"));
  std::map<std::string, int> runs;
  for (const AccuracyRow& row : read_report<AccuracyRow>(got + kArch + "/accuracy.csv").rows) ++runs[row.run_id];
  CHECK(runs.size() == 1);
  CHECK(runs.begin()->first == env_of(got).at("run_id").get<std::string>());
}

/// Each sample stands in samples.csv once, and a pair has samples exactly if it has a row that was timed.
void samples_belong(const std::string& folder) {
  const auto key = [](const auto& row, const std::string& id) { return id + " " + row.kernel + " " + row.timing + " " + row.cache; };
  const std::string run_id = env_of(folder).at("run_id");
  std::set<std::string> sampled, timed;
  std::set<std::tuple<std::string, int64_t, int64_t>> seen;
  for (const SampleRow& row : rows_of_run<SampleRow>(folder + kArch, run_id)) {
    sampled.insert(key(row, row.case_id));
    CHECK(seen.insert({key(row, row.case_id), row.round.value_or(0), row.sample.value_or(0)}).second);
  }
  for (const ThroughputRow& row : rows_of_run<ThroughputRow>(folder + kArch, run_id))
    if (row.time_us_median) timed.insert(key(row, case_id(row.c)));
  CHECK(sampled == timed);
}

/// As if the machine had lost power, not only the process: the end of the last append is gone.
void tear(const std::string& file, std::mt19937& random) {
  if (!fs::exists(file)) return;
  const std::string text = read_text_file(file);
  const size_t last_line = text.size() < 2 ? 0 : text.rfind('\n', text.size() - 2) + 1;
  if (last_line == 0 || last_line == text.size()) return;  // nothing but the header
  fs::resize_file(file, std::uniform_int_distribution<size_t>(last_line + 1, text.size() - 1)(random));
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != ".lock") all[entry.path()] = read_text_file(entry.path());
  return all;
}

}  // namespace

TEST_CASE("killed at 20 random moments and resumed, the reports are those of an undisturbed run") {
  Folder want;
  const auto begin = steady_clock::now();
  const Ran undisturbed = run(kQuestion + " --out " + want.path);
  const double span_s = std::chrono::duration<double>(steady_clock::now() - begin).count();
  INFO(undisturbed.text);
  REQUIRE(undisturbed.status == 1);
  REQUIRE(lasting<AccuracyRow>(want.path).size() > 50);
  REQUIRE(lasting<ThroughputRow>(want.path).size() > 10);

  std::mt19937 random(20);
  std::uniform_real_distribution<double> moment_s(0, span_s);
  int kills = 0;
  while (kills < 20) {
    Folder got;
    int processes = 0;
    for (int status = -1; status != undisturbed.status;) {
      const bool begun = fs::exists(got.path + kArch + "/env.json");
      Background program(kQuestion + (begun ? " --resume " : " --out ") + got.path);
      processes += begun;
      if (kills < 20 && program.kill_at(moment_s(random))) {
        ++kills;
        if (kills % 3 == 0) tear(got.path + kArch + (kills % 2 ? "/accuracy.csv" : "/throughput.csv"), random);
      } else {
        status = program.wait();
        REQUIRE(status == undisturbed.status);
      }
    }
    INFO(kills << " kills so far");
    same_reports(got.path, want.path);
    samples_belong(got.path);
  }
}

TEST_CASE("a run is resumed only by the same question of the same binary, plug-in and device") {
  Folder out, other;
  fs::copy_file(kBuild / "example_plugin.so", other.path + "/mine.so");
  const std::string question = "check --plugin " + other.path + "/mine.so" + kCase + " --checks guards --progress none";
  REQUIRE(run(question + " --out " + out.path).status == 0);
  for (const AccuracyRow& row : read_report<AccuracyRow>(out.path + kArch + "/accuracy.csv").rows)
    CHECK(row.plugin_sha == sha256_of_file(other.path + "/mine.so"));
  const auto before = contents(out.path);
  const std::string resume = " --resume " + out.path;

  const auto refused = [&](const std::string& command, const std::string& why) {
    const Ran ran = shell(command);
    INFO(command << " -> " << ran.text);
    CHECK(ran.status == 3);
    CHECK(lines(ran.text) == 1);
    CHECK_THAT(ran.text, ContainsSubstring("smla: --resume " + out.path + ": that run was of another " + why));
    CHECK(contents(out.path) == before);
  };
  refused("./smla " + question + resume + " --case 'decode b=1 s_q=1 h_q=2 s_kv=91 topk=20'", "cases: 1 cases, ");
  refused("./smla " + question + resume + " --oracle-rows 5", "flags:  --checks guards then,  --checks guards --oracle-rows 5 now");
  refused("./smla " + question + resume + " --kernel cpu_naive", "kernels: ");
  refused("./smla bench" + question.substr(5) + resume, "verb: check then, bench now");
  refused("./smla check --suite quick --plugin " + other.path + "/mine.so --checks guards --progress none" + resume, "suite: --case then, quick now");
  fs::copy_file(kBuild / "smla", other.path + "/smla");
  std::ofstream(other.path + "/smla", std::ios::app) << "x";
  refused(other.path + "/smla " + question + resume, "binary: ");
  std::ofstream(other.path + "/mine.so", std::ios::app) << "x";
  refused("./smla " + question + resume, "plugin: ");
  fs::resize_file(other.path + "/mine.so", fs::file_size(other.path + "/mine.so") - 1);

  std::string env = text_of(out.path, "env.json");
  const size_t device = env.find("\"device\": \"cpu_x86_64, ");
  REQUIRE(device != env.npos);
  std::ofstream(out.path + kArch + "/env.json") << env.insert(device + 23, "Another ");
  const auto edited = contents(out.path);
  const Ran ran = run(question + resume);
  CHECK_THAT(ran.text, ContainsSubstring("another device: cpu_x86_64, Another "));
  CHECK(contents(out.path) == edited);
}

TEST_CASE("what cannot be resumed is said in one line, and nothing is made") {
  Folder out;
  const std::string question = "check --kernel cpu_naive" + kCase + " --progress none";
  const auto refused = [&](const std::string& words, const std::string& why) {
    const Ran ran = run(question + words);
    INFO(words << " -> " << ran.text);
    CHECK(ran.status == 3);
    CHECK(lines(ran.text) == 1);
    CHECK_THAT(ran.text, ContainsSubstring(why));
  };
  refused(" --resume " + out.path, out.path + kArch + " is not there");
  CHECK(fs::is_empty(out.path));
  fs::create_directory(out.path + kArch);
  refused(" --resume " + out.path, "no run was begun in " + out.path + kArch);
  refused(" --retry", "--resume DIR");
  refused(" --resume a --out b", "not in --out b");
}

TEST_CASE("a finished run has nothing left; --retry asks again what crashed, and its last rows count") {
  Folder out;
  const std::string file = out.path + "/mended";
  const std::string question = "SMLA_HOSTILE_FILE=" + file +
                               " ./smla check --plugin harness/testing/libsmla_hostile.so --kernel needs_file --kernel declines" + kCase +
                               " --checks none --progress none";
  const auto status_of = [&](size_t rows) {
    const auto report = read_report<AccuracyRow>(out.path + kArch + "/accuracy.csv");
    REQUIRE(report.rows.size() == rows);
    return name_of(report.rows.back().status);
  };
  CHECK(shell(question + " --out " + out.path).status == 1);
  CHECK(status_of(4) == "unsupported");
  std::ofstream(file) << "";
  const Ran again = shell(question + " --resume " + out.path);
  CHECK_THAT(again.text,
             ContainsSubstring("passed 0 / planned 2, 1 crash, 1 unsupported") && ContainsSubstring("resumed: 2 of them were in the report"));
  CHECK(again.status == 1);
  CHECK(status_of(4) == "unsupported");
  const Ran retried = shell(question + " --resume " + out.path + " --retry");
  CHECK_THAT(retried.text, ContainsSubstring("passed 0 / planned 2, 1 fail, 1 unsupported") && ContainsSubstring("resumed: 1 of them"));
  CHECK(status_of(6) == "fail");
  CHECK(text_of(out.path, "summary.md").starts_with("# 0 / 2 passed: 1 red, 1 unsupported or skipped, 0 not run\n"));
  CHECK_THAT(text_of(out.path, "junit.xml"), ContainsSubstring("errors=\"0\""));
  CHECK(env_of(out.path).at("resumed") == 2);
}
