// SPDX-License-Identifier: Apache-2.0
#include "reports/gate.h"

#include <filesystem>

#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

namespace {

AccuracyRow accuracy(int h_q, const char* kernel, Status status = Status::pass) {
  AccuracyRow row;
  row.arch = "sm_90";
  row.device_name = "Card";
  row.c = parse_line("decode b=1 s_q=1 h_q=" + std::to_string(h_q) + " s_kv=256 topk=64");
  row.kernel = kernel;
  row.status = status;
  row.declared = "p=bf16";
  row.checks_run = "guards|inputs|poison";
  row.oracle_rows = 64;
  row.repro = "smla check --kernel " + row.kernel;
  if (status != Status::pass) row.detail = "because";
  return row;
}

ThroughputRow timing(int h_q, const char* kernel, double median_us, double noise = 0.002) {
  ThroughputRow row;
  row.arch = "sm_90";
  row.device_name = "Card";
  row.c = parse_line("decode b=1 s_q=1 h_q=" + std::to_string(h_q) + " s_kv=256 topk=64");
  row.kernel = kernel;
  row.timing = "event";
  row.cache = "cold";
  row.samples = 50;
  row.time_us_q1 = median_us * (1 - noise);
  row.time_us_median = median_us;
  row.time_us_q3 = median_us * (1 + noise);
  row.outputs_verified = true;
  return row;
}

struct Sides {
  Report<AccuracyRow> baseline{"base/accuracy.csv", {accuracy(1, "k"), accuracy(2, "k")}, false}, run = baseline;
  std::vector<ThroughputRow> old_times, new_times;
  std::vector<KnownIssue> issues;
  GateResult operator()(const GateOptions& options = {}) const {
    const TimedSet before = make_timed({"base/throughput.csv", old_times, false}, nullptr),
                   now = make_timed({"run/throughput.csv", new_times, false}, nullptr);
    const bool timed = !old_times.empty();
    return gate({&baseline, &run, timed ? &before : nullptr, timed ? &now : nullptr, issues}, options);
  }
};

/// The one finding of a gate that should have one.
Finding only(const GateResult& result) {
  REQUIRE(result.findings.size() == 1);
  return result.findings[0];
}

}  // namespace

TEST_CASE("the same again is green") {
  Sides sides;
  sides.old_times = sides.new_times = {timing(1, "k", 100), timing(2, "k", 50)};
  const GateResult result = sides();
  CHECK(result.findings.empty());
  CHECK(result.exit_status() == 0);
  CHECK(result.pairs_passed == 2);
  CHECK(result.times_same_or_faster == 2);
  CHECK_THAT(gate_markdown(result), ContainsSubstring("# Gate green\n\n2 / 2 pairs passed (0 not in the baseline).\n2 times compared with the "
                                                      "baseline's: 2 surely no slower than allowed, 0 slower, 0 undecided."));
}

TEST_CASE("correctness: the oracle decides, the baseline says what must not be lost") {
  Sides sides;
  SECTION("a red row, whatever it was before") {
    sides.run.rows[1] = sides.baseline.rows[1] = accuracy(2, "k", Status::fail);
    CHECK(only(sides()).rule == Rule::not_passed);
    CHECK(sides().exit_status() == 1);
    CHECK_THAT(gate_markdown(sides()), ContainsSubstring("```sh\nsmla check --kernel k\n```"));
  }
  SECTION("verdict lost: declined") {
    sides.run.rows[1] = accuracy(2, "k", Status::unsupported);
    CHECK(only(sides()).rule == Rule::verdict_lost);
    CHECK_THAT(only(sides()).text, ContainsSubstring("now unsupported: because"));
    CHECK(sides().exit_status() == 1);
  }
  SECTION("verdict lost: not there") {
    sides.run.rows.pop_back();
    CHECK(only(sides()).rule == Rule::verdict_lost);
    CHECK(sides().exit_status() == 1);
  }
  SECTION("what was declined before may be declined now") {
    sides.run.rows[1] = sides.baseline.rows[1] = accuracy(2, "k", Status::unsupported);
    CHECK(sides().findings.empty());
  }
  SECTION("a new pair is judged by the oracle alone") {
    sides.run.rows.push_back(accuracy(3, "k"));
    CHECK(sides().findings.empty());
    CHECK(sides().pairs_fresh == 1);
    sides.run.rows.push_back(accuracy(4, "k", Status::mistrusted));
    CHECK(sides().exit_status() == 1);
  }
  SECTION("a loosened contract") {
    sides.run.rows[0].declared = "p=e4m3|row_sum=rounded";
    CHECK(only(sides()).rule == Rule::contract_changed);
    CHECK(only(sides()).text == "declares p=e4m3 was bf16, row_sum=rounded was exact");
    CHECK(sides().exit_status() == 1);
  }
  SECTION("a check that is no longer made") {
    sides.run.rows[0].checks_run = "guards";
    CHECK(only(sides()).rule == Rule::check_lost);
    CHECK(only(sides()).text == "made in the baseline and not made now: inputs, poison");
    CHECK(sides().exit_status() == 1);
  }
  SECTION("fewer rows are judged") {
    sides.run.rows[0].oracle_rows = 16;
    CHECK(only(sides()).rule == Rule::check_lost);
    CHECK(only(sides()).text == "16 rows judged by the oracle, in the baseline 64");
    sides.run.rows[0].oracle_rows = 128;
    CHECK(sides().findings.empty());
    sides.run.rows[0].rows_unjudged = 65;
    CHECK(only(sides()).rule == Rule::check_lost);
  }
  SECTION("half a pair") {
    AccuracyRow lse = sides.baseline.rows[0];
    lse.tensor = Tensor::lse;
    sides.baseline.rows.push_back(lse);
    const Finding half = only(sides());
    CHECK(half.rule == Rule::verdict_lost);
    CHECK_THAT(half.text, ContainsSubstring("without its row of lse"));
    sides.run.rows.push_back(lse);
    CHECK(sides().findings.empty());
  }
  SECTION("one of the checks behind the same column") {
    sides.baseline.rows[0].checks_run = "guards|scaled|strided";
    sides.run.rows[0].checks_run = "strided|guards";
    const Finding lost = only(sides());
    CHECK(lost.rule == Rule::check_lost);
    CHECK_THAT(lost.text, ContainsSubstring("not made now: scaled"));
    sides.run.rows[0].checks_run = "scaled|strided|guards|halves";
    CHECK(sides().findings.empty());
  }
  SECTION("a grown pooled rms is reported, the absolute limit decides") {
    sides.baseline.rows[0].z_rms_pooled = 0.70;
    sides.run.rows[0].z_rms_pooled = 0.72;
    CHECK(sides().findings.empty());
    sides.run.rows[0].z_rms_pooled = 0.75;
    CHECK(only(sides()).rule == Rule::pooled_grew);
    CHECK(sides().exit_status() == 0);
  }
  SECTION("another arch is an error") {
    for (auto& row : sides.run.rows) row.arch = "sm_120";
    CHECK_THROWS_WITH(sides(), ContainsSubstring("base/accuracy.csv is of sm_90"));
    sides.run.rows[0].arch = "sm_90";
    CHECK_THROWS_WITH(sides(), ContainsSubstring("base/accuracy.csv:3: column arch"));
  }
}

TEST_CASE("contracts: looser and other is told from tighter") {
  CHECK(contract_change("", "") == "");
  CHECK(contract_change("p=bf16", "") == "");
  CHECK(contract_change("p=bf16|part=bf16", "p=fp16") == "");
  CHECK(contract_change("", "part=bf16") == "declares part=bf16 was fp32");
  CHECK(contract_change("p=bf16", "p=bf16|padding=tail_only") == "declares padding=tail_only was anywhere");
  CHECK(contract_change("p=bf16|lse_base=2", "p=bf16") == "declares lse_base=(default) was 2");  // another convention breaks callers
  CHECK(contract_change("p=fp16", "p=int4") == "declares p=int4 was fp16");
}

TEST_CASE("throughput: red beyond the allowed loss and beyond noise") {
  Sides sides;
  sides.old_times = {timing(1, "k", 100), timing(2, "k", 100)};
  SECTION("5 % slower") {
    sides.new_times = {timing(1, "k", 105), timing(2, "k", 100)};
    const Finding finding = only(sides());
    CHECK(finding.rule == Rule::slower);
    CHECK_THAT(finding.text, ContainsSubstring("event cold: 105 µs, 1.05 of the baseline's 100 µs, 97.5 % interval 1.0"));
    CHECK_THAT(
        gate_markdown(sides()),
        ContainsSubstring("2 pairs share a 5 % chance of one false verdict (Holm), so the level of each, 95 to 97.5 %, depends on the margin, 3 %,"));
    CHECK_THAT(finding.text, ContainsSubstring("from quartiles"));
    CHECK(sides().exit_status() == 2);
    CHECK(sides({.max_loss = 0.08}).exit_status() == 0);
    CHECK(sides({.noise_factor = 1000}).exit_status() == 0);
    CHECK(only(sides({.noise_factor = 1000})).rule == Rule::ambiguous);
  }
  SECTION("2 % slower is allowed, faster too") {
    sides.new_times = {timing(1, "k", 102), timing(2, "k", 60)};
    CHECK(sides().findings.empty());
  }
  SECTION("of many that cannot be told the slowest are shown") {
    sides.old_times.clear(), sides.new_times.clear();
    for (int i = 0; i < 30; ++i) {
      sides.old_times.push_back(timing(i + 1, "k", 100, 0.3));
      sides.new_times.push_back(timing(i + 1, "k", 100 + 0.1 * i, 0.3));
    }
    CHECK(sides().findings.size() == 30);
    const std::string text = gate_markdown(sides());
    CHECK_THAT(text, ContainsSubstring("102.9 µs") && ContainsSubstring("101 µs") && !ContainsSubstring("100.9 µs"));
    CHECK_THAT(text, ContainsSubstring("And 10 more `ambiguous`, each below 1.01 of its baseline's time."));
    CHECK(gate_junit(sides()).size() == 31);
  }
  SECTION("5 % slower in 30 % of noise: cannot be told, and how much could have been") {
    sides.old_times = {timing(1, "k", 100, 0.3)};
    sides.new_times = {timing(1, "k", 105, 0.3)};
    CHECK(only(sides()).rule == Rule::ambiguous);
    CHECK(sides().exit_status() == 0);
    CHECK(sides().detectable_max > 0.2);
    CHECK_THAT(gate_markdown(sides()), ContainsSubstring("80 % power"));
    sides.old_times[0].samples = 1;  // no interval, so nothing is said of what it could have seen
    CHECK_THAT(gate_markdown(sides()), !ContainsSubstring("80 % power"));
  }
  SECTION("a time that is gone") {
    sides.new_times = {timing(1, "k", 100)};
    CHECK(only(sides()).rule == Rule::time_lost);
    CHECK(sides().exit_status() == 2);
  }
  SECTION("impossible, crashed, unverified") {
    sides.new_times = {timing(1, "k", 100), timing(2, "k", 10)};
    sides.new_times[1].status = Status::impossible_fast;
    CHECK(only(sides()).rule == Rule::impossible_fast);
    CHECK(sides().exit_status() == 2);
    sides.new_times[1].status = Status::crash;
    CHECK(only(sides()).rule == Rule::time_lost);
    sides.new_times[1] = timing(3, "new", 10);
    sides.new_times[1].status = Status::timeout;
    sides.new_times.push_back(timing(2, "k", 100));
    CHECK(only(sides()).rule == Rule::not_passed);
    CHECK(sides().exit_status() == 1);
    sides.new_times = {timing(1, "k", 100), timing(2, "k", 100)};
    sides.new_times[1].outputs_verified = false;
    CHECK(only(sides()).rule == Rule::outputs_unverified);
    CHECK(sides().exit_status() == 1);
  }
  SECTION("another device is an error") {
    sides.new_times = {timing(1, "k", 100), timing(2, "k", 100)};
    sides.new_times[0].power_limit_w = 450;
    CHECK_THROWS_WITH(sides(), ContainsSubstring("not comparable"));
  }
}

TEST_CASE("known issues: not red while they last, red once they pass") {
  Sides sides;
  sides.issues = {
      {.kernel = "k", .case_filter = TypedRegex("h_q=2 "), .reason = "tail mask", .link = "https://example.org", .origin = "known.toml:1"}};
  sides.run.rows[1] = accuracy(2, "k", Status::fail);
  CHECK(only(sides()).level == Finding::Level::known);
  CHECK_THAT(only(sides()).text, ContainsSubstring("[known: tail mask https://example.org]"));
  CHECK(sides().exit_status() == 0);
  sides.run.rows[0] = accuracy(1, "k", Status::fail);  // beside it another one that is not known
  CHECK(sides().exit_status() == 1);
  sides.run.rows[0] = accuracy(1, "k");
  sides.run.rows[1] = accuracy(2, "k");
  CHECK(only(sides()).rule == Rule::known_issue_passes);
  CHECK_THAT(only(sides()).text, ContainsSubstring("known.toml:1: \"tail mask\" passes now: remove it from the list"));
  CHECK(sides().exit_status() == 1);
  sides.issues[0].case_filter = TypedRegex("h_q=99 ");
  CHECK(only(sides()).rule == Rule::unused_issue);
  CHECK(sides().exit_status() == 0);
}

TEST_CASE("JUnit: red fails, known is skipped, and the gate itself is a case with its figures") {
  Sides sides;
  sides.run.rows[0] = accuracy(1, "k", Status::fail);
  sides.run.rows[1] = accuracy(2, "k", Status::fail);
  sides.issues = {{.kernel = "k", .case_filter = TypedRegex("h_q=2 "), .reason = "r", .origin = "o"}};
  const auto cases = gate_junit(sides());
  REQUIRE(cases.size() == 3);
  CHECK(cases[0].ending == JunitCase::Ending::failure);
  CHECK(cases[1].ending == JunitCase::Ending::skipped);
  CHECK(cases[2].ending == JunitCase::Ending::failure);
  CHECK(cases[2].properties[0] == std::pair<std::string, std::string>("pairs", "2"));
}

TEST_CASE("an update replaces the pairs of the run and keeps the others; nothing red goes in") {
  char name[] = "/tmp/smla_gate_test_XXXXXX";
  const std::string folder = ::mkdtemp(name), run = folder + "/run", base = folder + "/base/sm_90";
  std::filesystem::create_directories(run);
  const auto write_run = [&](const std::vector<AccuracyRow>& rows, const std::vector<ThroughputRow>& times) {
    for (const char* file : {"/accuracy.csv", "/throughput.csv"}) std::filesystem::remove(run + file);
    ReportWriter<AccuracyRow>(run).append(rows);
    if (!times.empty()) ReportWriter<ThroughputRow>(run).append(times);
  };
  write_run({accuracy(1, "k"), accuracy(2, "k")}, {timing(1, "k", 100), timing(2, "k", 50)});
  update_baseline({run}, base, {});
  CHECK(read_text_file(base + "/accuracy.csv") == read_text_file(run + "/accuracy.csv"));
  CHECK(read_text_file(base + "/throughput.csv") == read_text_file(run + "/throughput.csv"));
  CHECK_FALSE(std::filesystem::exists(base + "/samples.csv"));  // the run has none: each gate would tell so

  write_run({accuracy(2, "k"), accuracy(3, "k")}, {timing(2, "k", 40)});
  update_baseline({run}, base, {});
  const auto rows = read_report<AccuracyRow>(base + "/accuracy.csv").rows;
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].c.h_q == 1);
  CHECK(rows[2].c.h_q == 3);
  const auto times = read_report<ThroughputRow>(base + "/throughput.csv").rows;
  REQUIRE(times.size() == 2);
  CHECK(times[1].time_us_median == 40);

  const std::string before = read_text_file(base + "/accuracy.csv");
  write_run({accuracy(1, "k", Status::fail)}, {});
  CHECK_THROWS_WITH(update_baseline({run}, base, {}), ContainsSubstring("is fail: the baseline was not changed"));
  CHECK(read_text_file(base + "/accuracy.csv") == before);
  const KnownIssue known{.kernel = "k", .reason = "r", .origin = "o"};
  CHECK_NOTHROW(update_baseline({run}, base, std::span(&known, 1)));
  std::filesystem::remove_all(folder);
}
