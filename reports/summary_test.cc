// SPDX-License-Identifier: Apache-2.0
#include "reports/summary.h"

#include "reports/outcome.h"
#include "smla_catch.h"

using namespace smla;

namespace {

AccuracyRow row(const char* kernel, Tensor tensor, Status status, const char* line = "decode b=1 s_q=1 h_q=8 s_kv=256 topk=64") {
  AccuracyRow r;
  r.c = parse_line(line);
  r.kernel = kernel;
  r.tensor = tensor;
  r.status = status;
  r.repro = "smla check --case 'decode ...' --kernel " + r.kernel;
  r.device_name = "Card";
  r.arch = "sm_90";
  r.n_elem = 4096;
  return r;
}

}  // namespace

TEST_CASE("it leads with passed / planned, and what was not run counts") {
  std::vector<AccuracyRow> rows{row("a", Tensor::out, Status::pass), row("a", Tensor::lse, Status::pass), row("b", Tensor::out, Status::pass),
                                row("b", Tensor::lse, Status::fail), row("c", Tensor::out, Status::unsupported)};
  rows[3].detail = "lse is | in base 2";
  rows[4].detail = "h_q must be a multiple of 16";
  rows[0].z_max = 3.5;
  rows[2].z_max = 4.25;
  rows[1].lse_err_max = 2e-6;
  SummaryInput input{.planned = 5, .accuracy = rows, .command = "smla run --suite quick", .wall_s = 12.34};
  std::string text = summary_markdown(input);
  CHECK(text.starts_with("# 1 / 5 passed: 1 red, 1 unsupported or skipped, 2 not run\n"));
  CHECK_THAT(text, ContainsSubstring("**fail** b: lse is \\| in base 2\n\n```\nsmla check --case 'decode ...' --kernel b\n```"));
  CHECK_THAT(text, ContainsSubstring("| c | unsupported | 1 | h_q must be a multiple of 16 |"));
  CHECK_THAT(text, ContainsSubstring("| kernel | pass | fail | unsupported |"));
  CHECK_THAT(text, ContainsSubstring("| b |  | 1 |  |"));
  CHECK_THAT(text, ContainsSubstring("| scattered | bf16 | 3 | 4.25 (b) |  |  | 2e-06 (a) |"));
  CHECK_THAT(text, ContainsSubstring("| wall time | 12.3 s |"));
  CHECK_THAT(text, !ContainsSubstring("## Throughput"));

  input.unexpected[pair_key(rows[0])] = "expected unsupported:a";  // a pass where the suite expects a refusal is red
  text = summary_markdown(input);
  CHECK(text.starts_with("# 0 / 5 passed: 2 red, 1 unsupported or skipped, 2 not run\n"));
  CHECK_THAT(text, ContainsSubstring("**pass** a: expected unsupported:a."));
  CHECK(summary_markdown({}).starts_with("# 0 / 0 passed"));
}

TEST_CASE("a pass without a valid key is told apart, and an error without a bound is inf") {
  std::vector<AccuracyRow> rows{row("a", Tensor::out, Status::pass), row("b", Tensor::out, Status::pass), row("c", Tensor::out, Status::fail)};
  CHECK_THAT(summary_markdown({.accuracy = rows}), !ContainsSubstring("no valid key"));
  rows[0].valid_keys_mean = 0;
  rows[1].valid_keys_mean = 0.5;
  rows[2].valid_keys_mean = 0;
  rows[1].z_max = 5;
  rows[2].z_max = std::numeric_limits<double>::infinity();
  const std::string text = summary_markdown({.accuracy = rows});
  CHECK_THAT(text, ContainsSubstring("1 of the passed have no valid key in any row"));
  CHECK_THAT(text, ContainsSubstring("| inf (c) |"));
}

TEST_CASE("throughput stands beside the dense roof; a reproducer cannot close its fence") {
  ThroughputRow t[2];
  t[0].c = t[1].c = parse_line("decode b=1 s_q=1 h_q=8 s_kv=256 topk=64");
  t[0].kernel = "fast";
  t[0].time_us_median = 13.25;
  t[0].time_rel_iqr = 0.0123;
  t[0].roof_frac = 0.5;
  t[0].dense_kernel = "cpu_dense";
  t[0].dense_time_us_median = 100;
  t[0].dense_roof_us = 42;
  t[0].speedup_vs_dense = 7.55;
  t[1].kernel = "cheat";
  t[1].status = Status::impossible_fast;
  t[1].detail = "0.4 of the roof";
  t[1].repro = "smla ``` bench";
  const std::string text = summary_markdown({.throughput = t});
  CHECK_THAT(text, ContainsSubstring("Throughput: 1 of 2 rows measured."));
  CHECK(summary_markdown({.planned = 3, .throughput = t, .only_timed = true}).starts_with("# 1 / 3 timed: 1 red, 1 not timed\n"));
  CHECK_THAT(text, ContainsSubstring("| 13.25 | 1.2 |  |  | 50.0 |  | 100 | 7.55 | cpu_dense | 42 |"));
  CHECK_THAT(text, ContainsSubstring("**impossible_fast** cheat"));
  CHECK_THAT(text, ContainsSubstring("````\nsmla ``` bench\n````"));
}
