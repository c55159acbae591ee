// SPDX-License-Identifier: Apache-2.0
// The built program, called as people call it: exit statuses, the one line that a mistake gets, what is printed and written.
#include "harness/testing/program.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reports/env.h"
#include "reports/report_file.h"
#include "reports/text.h"

using namespace smla;
namespace fs = std::filesystem;

namespace {

const std::string kCase = "--case 'decode b=2 s_q=1 h_q=8 s_kv=300 topk=100'";

}  // namespace

TEST_CASE("a mistake is one line that names the nearest, exit 3, and nothing is written") {
  const struct {
    const char *words, *named;
  } mistakes[] = {
      {"chekc", "check"},
      {"check --kernell cpu_naive", "--kernel"},
      {"check --kernel cpu_naiv", "cpu_naive"},
      {"check --kernel nobody", "list kernels"},
      {"check --suite quik", "quick"},
      {"check --checks poisson", "poison"},
      {"check --case 'decode b=1 topkk=3'", "topk"},
      {"check --case 'decode b=1 pattern=scatterd'", "scattered"},
      {"check --case 'decode b=1 values=needle kv_format=fp8_656'", "scales"},
      {"check --cases /nowhere.toml", "/nowhere.toml"},
      {"check --set topk", "key=v1,v2"},
      {"check --shard 5/4", "1/4"},
      {"check --filter '('", "--filter"},
      {"check --plugin /nowhere.so", "/nowhere.so"},
      {"check --progress fancy", "auto"},
      {"check --oracle-rows some", "--oracle-rows"},
      {"check extra", "extra"},
      {"list kernel", "kernels"},
  };
  for (const auto& mistake : mistakes) {
    Folder out;
    const bool writes = std::string(mistake.words).rfind("check -", 0) == 0;
    const Ran ran = run(std::string(mistake.words) + (writes ? " --out " + out.path : ""));
    INFO(mistake.words << " -> " << ran.text);
    CHECK(ran.status == 3);
    CHECK(lines(ran.text) == 1);
    CHECK_THAT(ran.text, ContainsSubstring(mistake.named));
    CHECK(fs::is_empty(out.path));
  }
}

TEST_CASE("OUT that cannot be written is a usage error") {
  Folder out;
  std::ofstream(out.path + "/file") << "";
  const Ran ran = run("check " + kCase + " --out " + out.path + "/file");
  CHECK(ran.status == 3);
  CHECK_THAT(ran.text, ContainsSubstring("--out"));
}

TEST_CASE("nothing matched is 4, nothing passed is 77, no words is help and 3") {
  Folder out;
  CHECK(run("check --filter nothing_is_called_so --out " + out.path).status == 4);
  CHECK(run("check --kernel 'gpuless_*' --out " + out.path).status == 4);
  const Ran none = run("check --kernel cpu_dense " + kCase + " --out " + out.path);
  CHECK(none.status == 77);
  CHECK_THAT(none.text, ContainsSubstring("passed 0 / planned 1, 1 unsupported"));
  CHECK(run("").status == 3);
  CHECK(run("--help").status == 0);
  CHECK_THAT(run("--version").text, ContainsSubstring("smla " + build_info().tool_version + " (") && ContainsSubstring(", built for "));
  CHECK_THAT(run("check --help").text, ContainsSubstring("--oracle-rows"));
}

TEST_CASE("check tells, writes rows that read back, and ends green") {
  Folder out;
  const Ran ran = run("check --kernel 'cpu_[ns]*' --kernel cpu_dense --skip x " + kCase + " --out " + out.path + " --progress none");
  INFO(ran.text);
  CHECK(ran.status == 0);
  const std::string folder = out.path + "/cpu_x86_64";
  const auto report = read_report<AccuracyRow>(folder + "/accuracy.csv");
  REQUIRE(report.rows.size() > 4);
  for (const AccuracyRow& row : report.rows) {
    if (row.kernel != "cpu_split" || row.tensor != Tensor::out) continue;
    CHECK(row.status == Status::pass);
    CHECK(row.oracle_rows == 16);
    CHECK(row.n_elem == 16 * 512);
    CHECK(row.poison_ok == Flag{true});
    CHECK(row.guards_ok == Flag{true});
    CHECK(row.outputs_written_ok == Flag{true});
    CHECK(row.determinism_ok == Flag{true});
    CHECK(row.checks_run == "guards|inputs|written|determinism|poison|strided|batch");
    CHECK(*row.z_max < 6);
    CHECK_THAT(row.repro, ContainsSubstring("./smla check --kernel cpu_split --case"));
  }
  for (const char* file : {"summary.md", "junit.xml", "env.json"}) CHECK(fs::exists(folder + "/" + file));
}

TEST_CASE("answers that need no oracle and do not fit together are judged as they come, all rows of them, against the base run too") {
  Folder out;
  // One answer is 26 MB, where 24 MiB a kernel may be held; sensitivity holds the base run's rows against the changed question.
  const std::string line = " --case 'prefill b=1 s_q=25000 h_q=1 s_kv=2 topk=2 topk_length=1 pattern=dense values=tracer'";
  const Ran ran = run("check --kernel cpu_naive --kernel fake_zeros --checks sensitivity --progress none" + line + " --out " + out.path);
  INFO(ran.text);
  CHECK(ran.status == 1);
  const auto rows = read_report<AccuracyRow>(out.path + "/cpu_x86_64/accuracy.csv").rows;
  REQUIRE(rows.size() == 4);
  for (const AccuracyRow& row : rows) {
    CHECK(row.oracle_rows == 25000);
    CHECK(row.status == (row.kernel == "cpu_naive" ? Status::pass : Status::fail));
    CHECK(row.metamorphic_ok == Flag{row.kernel == "cpu_naive"});
  }
}

TEST_CASE("a defect is red, and its reproducer asks exactly that again") {
  Folder out;
  const Ran ran = run("check --kernel fake_zeros " + kCase + " --progress none --out " + out.path);
  INFO(ran.text);
  CHECK(ran.status == 1);
  const auto first = read_report<AccuracyRow>(out.path + "/cpu_x86_64/accuracy.csv").rows;
  REQUIRE(!first.empty());
  CHECK(first[0].status == Status::fail);
  CHECK_THAT(ran.text, ContainsSubstring("rerun: " + first[0].repro));
  Folder again;
  const Ran rerun = shell(first[0].repro + " --out " + again.path);
  CHECK(rerun.status == 1);
  const auto second = read_report<AccuracyRow>(again.path + "/cpu_x86_64/accuracy.csv").rows;
  REQUIRE(second.size() == first.size());
  CHECK(second[0].n_bad_rows == first[0].n_bad_rows);
  CHECK(second[0].detail == first[0].detail);
}

TEST_CASE("what is printed to be run again runs as it is, where the program was started, however it was started") {
  const auto behind = [](const std::string& text, const std::string& begin) {
    const size_t at = text.find(begin);
    REQUIRE(at != text.npos);
    return text.substr(at + begin.size(), text.find('\n', at) - at - begin.size());
  };
  const Folder folder;
  const std::string here = folder.path + "/it's here";
  fs::create_directories(here + "/bin");
  fs::create_symlink(kBuild / "smla", here + "/bin/smla");
  fs::create_symlink(kBuild / "harness/testing/libsmla_hostile.so", here + "/my kernels.so");
  const std::string cd = "cd \"" + here + "\" && PATH=\"" + here + "/bin:$PATH\" && ";
  for (const std::string program : {"smla", "bin/smla", "\"$PWD/bin/smla\""}) {
    const Ran ran = shell(
        cd + program +
        " check --plugin './my kernels.so' --kernel healthy --checks guards --threads 1 --case-timeout 7 --progress none --dump failed " + kCase);
    INFO(ran.text);
    CHECK(ran.status == 1);
    const Ran again = shell(cd + behind(ran.text, "rerun: "));
    INFO(again.text);
    CHECK(again.status == 1);
    CHECK(behind(again.text, "rerun: ") == behind(ran.text, "rerun: "));
    CHECK(shell(cd + behind(ran.text, "captured: ")).status == 1);
  }
}

TEST_CASE("what only a check saw is not captured: a replay would pass") {
  Folder out;
  const Ran ran = run("check --kernel mut_out_packed --kernel fake_zeros --dump failed --progress none " + kCase + " --out " + out.path);
  INFO(ran.text);
  CHECK(ran.status == 1);
  CHECK_THAT(ran.text, ContainsSubstring("not captured: its numbers are right, and a replay would show nothing of what the checks saw"));
  const size_t captured = ran.text.find("captured: ./smla replay " + out.path);
  REQUIRE(captured != ran.text.npos);
  CHECK(run("replay " + out.path + "/cpu_x86_64/failed/*").status == 1);
}

TEST_CASE("the example plug-in passes every check, and declines with its reason") {
  Folder out;
  const Ran ran =
      run("check --plugin ./example_plugin.so --checks all " + kCase +
          " --case 'decode b=5 s_q=2 h_q=8 s_kv=300 topk=100 pattern=interleaved_invalid sink=mixed' --case 'decode b=1 s_q=1 h_q=8 s_kv=300 "
          "topk=100 kv_format=fp8_656' -v --progress none --out " +
          out.path);
  INFO(ran.text);
  CHECK(ran.status == 0);
  CHECK_THAT(ran.text, ContainsSubstring("passed 2 / planned 3, 1 unsupported"));
  CHECK_THAT(ran.text, ContainsSubstring("only bf16 queries over a bf16 cache"));
}

TEST_CASE("a case without any key says that it asked next to nothing") {
  Folder out;
  const std::string line = " --case 'decode b=2 s_q=1 h_q=2 s_kv=40 topk=20 pattern=page_straddling page_size=";
  const auto check = [&](const std::string& page_size) {
    return run("check --kernel cpu_naive --progress none" + line + page_size + "' --out " + out.path);
  };
  CHECK_THAT(check("64").text, ContainsSubstring("no row of this case has a key"));
  CHECK_THAT(check("8").text, !ContainsSubstring("no row of this case has a key"));
}

TEST_CASE("a kernel that is wrong at the first launch of its process alone is noticed whatever the checks, once a run") {
  const std::string line = " --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20 pattern=all_invalid";
  struct {
    std::string kernel, checks, said;
  } const asked[] = {{"wrong_first", "none", "rows wrong"},
                     {"wrong_first", "quick", "determinism: the first launch of a process: out differs, where the same bits are declared"},
                     {"wrong_first", "all", "determinism: the first launch of a process: out differs, where the same bits are declared"},
                     {"wrong_first_undeclared", "quick", "determinism: the first launch of a process: 1 of 2 rows wrong"}};
  for (const auto& [kernel, checks, said] : asked) {
    Folder out;
    const Ran ran = run("check --plugin harness/testing/libsmla_hostile.so --kernel " + kernel + " --checks " + checks + line + "'" + line +
                        " seed=2' --progress none --out " + out.path);
    INFO(ran.text);
    CHECK(ran.status == 1);
    CHECK_THAT(ran.text, ContainsSubstring("passed 1 / planned 2, 1 fail") && ContainsSubstring(said));
  }
}

TEST_CASE("a needle case of few rows asks for the last key, and says how many entries it asks") {
  Folder out;
  const std::string line = " --case 'decode b=4 s_q=1 h_q=1 s_kv=19 topk=19 values=needle'";
  const Ran ran = run("check --checks none --kernel cpu_split --kernel mut_last_key_dropped --progress none --out " + out.path + line);
  INFO(ran.text);
  CHECK(ran.status == 1);
  CHECK_THAT(ran.text, ContainsSubstring("passed 1 / planned 2, 1 fail"));
  CHECK_THAT(ran.text, ContainsSubstring("values=needle  # asks 4 of 19 entries"));
  CHECK_THAT(run("list cases" + line).text, ContainsSubstring("values=needle  # asks 4 of 19 entries"));
}

TEST_CASE("a verdict names the cause that gives the kernel's own answer") {
  Folder out;
  const Ran ran = run("check --kernel mut_last_key_dropped --kernel mut_lse_in_base_2 --progress none " + kCase + " --out " + out.path);
  INFO(ran.text);
  CHECK_THAT(ran.text, ContainsSubstring("; as if the last valid entry were left out; also under batch"));
  CHECK_THAT(ran.text, ContainsSubstring("(base e); as if it were in base 2; also under batch"));
}

TEST_CASE("what is wrong is said once, however many checks find it again") {
  Folder out;
  const Ran ran = run("check --checks all --kernel mut_lse_in_base_2 --progress none " + kCase + " --out " + out.path);
  INFO(ran.text);
  CHECK(ran.status == 1);
  const size_t said = ran.text.find("rows wrong");
  CHECK(said != ran.text.npos);
  CHECK(said == ran.text.rfind("rows wrong"));
  CHECK_THAT(ran.text, ContainsSubstring("; also under batch, permuted"));
}

TEST_CASE("every check over cases without an oracle, whose answers are judged as they come") {
  Folder out;  // one request, and several
  const Ran ran =
      run("check --kernel cpu_split --checks all --case 'decode b=1 s_q=2 h_q=8 s_kv=300 topk=64 values=needle' --case 'decode b=2 s_q=2 h_q=8 "
          "s_kv=300 topk=64 values=tracer' --progress none --out " +
          out.path);
  INFO(ran.text);
  CHECK(ran.status == 0);
  CHECK_THAT(ran.text, ContainsSubstring("passed 2 / planned 2"));
}

TEST_CASE("bench times what passed, and Google Benchmark's file is there") {
  Folder out;
  const Ran ran = run("bench --kernel cpu_split " + kCase + " --max-time 0.05 --cache both --progress none --out " + out.path);
  INFO(ran.text);
  CHECK(ran.status == 0);
  const auto rows = read_report<ThroughputRow>(out.path + "/cpu_x86_64/throughput.csv").rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].cache == "cold");
  CHECK(rows[1].cache == "warm");
  for (const ThroughputRow& row : rows) {
    CHECK(*row.time_us_median > 0);
    CHECK(row.outputs_verified == Flag{true});
    CHECK(*row.flops == int64_t{2} * 8 * 200 * (576 + 512));
  }
  const auto text_of = [&](const std::string& name) {
    std::ifstream file(out.path + "/cpu_x86_64/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  };
  CHECK_THAT(text_of("benchmark.json"), ContainsSubstring("\"real_time\""));
  CHECK(text_of("summary.md").starts_with("# 2 / 2 timed: 0 red, 0 not timed\n"));
}

TEST_CASE("what nobody could time is not timed") {
  Folder out;
  const std::string asked = " --kernel cpu_naive " + kCase + " --timing graph --progress none --out " + out.path;
  const Ran bench = run("bench" + asked);
  INFO(bench.text);
  CHECK(bench.status == 77);
  CHECK_THAT(bench.text, ContainsSubstring("timed 0 / planned 1, 1 skipped"));
  CHECK(read_text_file(out.path + "/cpu_x86_64/summary.md").starts_with("# 0 / 1 timed: 0 red, 1 not timed\n"));
  CHECK(run("run" + asked).status == 0);  // it passed its checks
}

TEST_CASE("a format of Google Benchmark's has stdout for itself") {
  Folder out;
  const std::string asked = "bench --kernel cpu_naive " + kCase + " --max-time 0.02 --progress none --out " + out.path + " --benchmark_format ";
  const Ran json = run(asked + "json 2> " + out.path + "/said");
  INFO(json.text);
  CHECK(json.status == 0);
  CHECK(nlohmann::json::parse(json.text)["benchmarks"].size() == 1);
  CHECK_THAT(read_text_file(out.path + "/said"), ContainsSubstring("pass            cpu_naive") && ContainsSubstring("timed 1 / planned 1"));
  const Ran csv = run(asked + "csv 2> " + out.path + "/said");
  CHECK(csv.text.starts_with("name,iterations,real_time"));
  CHECK(lines(csv.text) == 2);
}

TEST_CASE("bench: a kernel that is wrong only at some of the timed calls has no time") {
  Folder out;
  const Ran ran =
      run("bench --plugin harness/testing/libsmla_hostile.so --kernel slips_when_timed --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20 "
          "pattern=all_invalid' --min-samples 100 --cache warm "
          "--max-noise 99% --threads 1 --progress none --out " +
          out.path);
  INFO(ran.text);
  CHECK(ran.status == 2);
  CHECK_THAT(ran.text, ContainsSubstring(" timed calls that were looked at ") && ContainsSubstring(" answered other bits than the checked one"));
}

TEST_CASE("SIGTERM ends a run at once, in the middle of a case: what was finished of it stands in the report, and --resume asks the rest") {
  Folder out;
  const std::string file = out.path + "/there", report = out.path + "/cpu_x86_64/accuracy.csv";
  const std::string command = "SMLA_HOSTILE_FILE=" + file +
                              " ./smla check --plugin harness/testing/libsmla_hostile.so --kernel declines --kernel error"
                              " --kernel healthy --kernel wait_for_file --kernel write_past_out --checks guards --threads 1 --progress none " +
                              kCase;
  const Ran ran = shell(command + " --out " + out.path + " & p=$!; while kill -0 $p 2>/dev/null && ! [ -e " + file +
                        ".awaited ]; do sleep 0.02; done; kill -TERM $p; kill -TERM $p; begun=$(date +%s%N); wait $p; status=$?; "
                        "echo took $((($(date +%s%N) - begun) / 1000000)) ms; exit $status");
  INFO(ran.text);
  CHECK(ran.status == 143);
  CHECK_THAT(ran.text, ContainsSubstring("interrupted by signal 15: 4 of 5 pairs are in the report"));
  const size_t took = ran.text.find("took ");
  REQUIRE(took != ran.text.npos);
  CHECK(std::stoi(ran.text.substr(took + 5)) < 3000);  // the deadline of the kernel that hangs is 60 s
  const auto kernels = [&] {
    std::vector<std::string> names;
    for (const AccuracyRow& row : read_report<AccuracyRow>(report).rows)
      if (names.empty() || names.back() != row.kernel) names.push_back(row.kernel);
    return names;
  };
  CHECK(kernels() == std::vector<std::string>{"healthy", "error", "write_past_out", "declines"});
  std::ofstream(file) << "";
  const Ran rest = shell(command + " --resume " + out.path);
  INFO(rest.text);
  CHECK_THAT(rest.text, ContainsSubstring("resumed: 4 of them were in the report"));
  CHECK(kernels() == std::vector<std::string>{"healthy", "error", "write_past_out", "declines", "wait_for_file"});
}

TEST_CASE("a daemon does not outlive the worker that started it and died") {
  Folder out;
  const Ran ran = shell("SMLA_HOSTILE_FILE=" + out.path +
                        " ./smla check --plugin harness/testing/libsmla_hostile.so --kernel daemon_die --kernel declines --checks none --threads 1"
                        " --progress none " +
                        kCase + " --set seed=1,2,3 --out " + out.path);
  INFO(ran.text);
  CHECK_THAT(ran.text, ContainsSubstring("passed 0 / planned 6, 3 crash, 3 unsupported"));
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream environment(entry.path() / "environ");
    const std::string text(std::istreambuf_iterator<char>(environment), {});
    CHECK_THAT(text, !ContainsSubstring("SMLA_HOSTILE_FILE=" + out.path));
  }
}

TEST_CASE("a signal of a kernel's stops nothing") {
  Folder out;
  const Ran ran =
      run("check --plugin harness/testing/libsmla_hostile.so --kernel signal_parent --kernel signal_parent_from_child --kernel declines"
          " --checks none --threads 1 --progress none -v " +
          kCase + " --set seed=1,2 --out " + out.path);
  INFO(ran.text);
  CHECK(ran.status == 1);
  CHECK_THAT(ran.text, ContainsSubstring("passed 0 / planned 6, 4 crash, 2 unsupported"));
  CHECK_THAT(ran.text, ContainsSubstring("sent SIGTERM to the process that runs the harness"));
  CHECK_THAT(ran.text, ContainsSubstring("sent SIGUSR1 to the process that runs the harness"));
}

TEST_CASE("SIGTERM ends a run with whole rows, the count and 128 + 15") {
  // Sent once the report's file is there, when a second set of workers starts, and later: earlier, there is nothing to keep whole.
  for (const char* later_s : {"0", "0.02", "0.05", "0.4"}) {
    Folder out;
    const Ran ran = shell("./smla check --suite quick --progress none -q --out " + out.path + " & p=$!; while kill -0 $p 2>/dev/null && ! [ -s " +
                          out.path + "/cpu_x86_64/accuracy.csv ]; do sleep 0.01; done; sleep " + later_s + "; kill -TERM $p; wait $p");
    INFO(later_s << ": " << ran.text);
    CHECK(ran.status == 143);
    CHECK_THAT(ran.text, ContainsSubstring("interrupted by signal 15"));
    const auto report = read_report<AccuracyRow>(out.path + "/cpu_x86_64/accuracy.csv");
    CHECK(!report.torn);
  }
}
