// SPDX-License-Identifier: Apache-2.0
#include "harness/verdict.h"

#include "smla_catch.h"

using namespace smla;

namespace {

Evidence healthy() {
  Evidence e;
  e.figures.rows = 64;
  e.figures.out.n_elem = 64 * 512;
  e.figures.out.z_max = 4;
  e.figures.out.worst_index = {0, 0, 0, 0};
  e.figures.lse.worst_index = {0, 0, 0};
  e.figures.pooled = {64, 64 * 512, 0.5 * 64 * 512};
  return e;
}

}  // namespace

TEST_CASE("healthy evidence passes without a word") {
  const Decision d = decide(healthy());
  CHECK(d.status() == Status::pass);
  CHECK(d.detail().empty());
}

TEST_CASE("each fault reaches its tensor, and no other") {
  Evidence out = healthy();
  out.figures.out.n_bad_rows = 1;
  CHECK(decide(out).out == Status::fail);
  CHECK(decide(out).lse == Status::pass);
  CHECK_THAT(decide(out).detail(), ContainsSubstring("1 of 64 rows"));

  Evidence lse = healthy();
  lse.figures.lse.n_bad_rows = 2;
  CHECK(decide(lse).out == Status::pass);
  CHECK(decide(lse).lse == Status::fail);
  CHECK(decide(lse).status() == Status::fail);
  lse.has_lse = false;
  CHECK(decide(lse).status() == Status::pass);

  Evidence pooled = healthy();
  pooled.figures.pooled.sum_z2 = 0.9 * 0.9 * 64 * 512;  // every row within its own limit
  CHECK(decide(pooled).out == Status::fail);
  CHECK_THAT(decide(pooled).detail(), ContainsSubstring("pooled"));
  pooled.figures.pooled.rows = 7;  // too few rows to say so
  CHECK(decide(pooled).out == Status::pass);
}

TEST_CASE("a cause explains a fault, and makes none") {
  Evidence e = healthy();
  e.causes = {"as if zeros were written", "as if it were in base 2"};
  CHECK(decide(e).status() == Status::pass);
  CHECK(decide(e).detail().empty());
  e.figures.out.n_bad_rows = 1;
  CHECK_THAT(decide(e).out_detail, ContainsSubstring("as if zeros were written"));
  CHECK(decide(e).lse == Status::pass);
}

TEST_CASE("what is hardly over its limit reads so") {
  Evidence e = healthy();
  e.figures.out.n_bad_rows = e.figures.lse.n_bad_rows = 1;
  e.figures.out.z_max = 6.0001;
  e.figures.row_rms_share_max = 1.00004;
  e.figures.lse_ratio_max = 1.0000002;
  e.figures.pooled.sum_z2 = 0.85002 * 0.85002 * 64 * 512;
  CHECK_THAT(decide(e).out_detail, ContainsSubstring("(z max 6.0001, row rms 1.00004 of its limit, "));
  CHECK_THAT(decide(e).out_detail, ContainsSubstring("pooled rms of z 0.85002 over 0.85"));
  CHECK_THAT(decide(e).lse_detail, ContainsSubstring("(1.0000002 of its limit)"));
}

TEST_CASE("a check that finds what the base run shows already is named, and the verdict is not said again") {
  Evidence e = healthy();
  e.figures.out.n_bad_rows = 3;
  for (const char* name : {"poison", "batch", "permuted"}) e.checks.push_back({parse_checks(name).front(), true, false, true, ""});
  e.checks[1].detail = "batch_reversed: out of 2 and lse of 0 of 64 rows wrong";
  const std::string detail = decide(e).out_detail;
  CHECK(detail.find("of 64 rows wrong (z") == detail.rfind("of 64 rows wrong (z"));
  CHECK_THAT(detail, ContainsSubstring("; batch: batch_reversed: out of 2 and lse of 0 of 64 rows wrong; also under poison, permuted"));
  CHECK(decide(e).lse_detail.empty());
}

TEST_CASE("a check that failed is red; one that did not run says nothing") {
  Evidence e = healthy();
  CheckOutcome outcome;
  outcome.check = 0;
  outcome.out_ok = false;
  outcome.detail = "byte 3 behind out";
  e.checks = {outcome};
  CHECK(decide(e).status() == Status::pass);
  e.checks[0].ran = true;
  CHECK(decide(e).out == Status::fail);
  CHECK(decide(e).lse == Status::pass);
  CHECK_THAT(decide(e).detail(), ContainsSubstring("byte 3 behind out"));
}

TEST_CASE("how a run ended comes before what it computed, and mistrust before figures") {
  Evidence e = healthy();
  e.figures.out.n_bad_rows = 64;
  e.mistrusted = "accepts zeros";
  CHECK(decide(e).out == Status::mistrusted);
  CHECK(decide(e).lse == Status::mistrusted);
  for (Status status : {Status::crash, Status::timeout, Status::oom, Status::unsupported, Status::skipped}) {
    e.ended = status;
    CHECK(decide(e).status() == status);
  }
}

TEST_CASE("red or not, and against what was expected") {
  for (Status status : {Status::fail, Status::mistrusted, Status::crash, Status::timeout, Status::oom}) CHECK(is_red(status, "k", "pass"));
  for (Status status : {Status::pass, Status::unsupported, Status::skipped}) CHECK_FALSE(is_red(status, "k", "pass"));

  std::string why;
  CHECK(is_red(Status::pass, "cpu_dense", "unsupported:cpu_d*", &why));
  CHECK_THAT(why, ContainsSubstring("unsupported"));
  CHECK_FALSE(is_red(Status::unsupported, "cpu_dense", "unsupported:cpu_d*"));
  CHECK_FALSE(is_red(Status::pass, "cpu_naive", "unsupported:cpu_d*"));
  CHECK(is_red(Status::fail, "cpu_naive", "unsupported:cpu_d*"));
  CHECK(is_red(Status::pass, "cpu_naive", "mistrusted"));
  CHECK_FALSE(is_red(Status::mistrusted, "cpu_naive", "mistrusted"));
}

TEST_CASE("a declaration too loose for a case: it says nothing for the kernel, only against it") {
  Evidence e = healthy();
  e.too_loose = "contract: too loose";
  CHECK(decide(e).status() == Status::unsupported);
  CHECK(decide(e).detail() == "contract: too loose");
  e.figures.lse.n_bad_rows = 1;
  CHECK(decide(e).lse == Status::fail);
}
