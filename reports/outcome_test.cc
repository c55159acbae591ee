// SPDX-License-Identifier: Apache-2.0
#include "reports/outcome.h"

#include <functional>

#include "smla_catch.h"

using namespace smla;

namespace {

AccuracyRow row(const char* kernel, Tensor tensor, Status status) {
  AccuracyRow r;
  r.kernel = kernel;
  r.tensor = tensor;
  r.status = status;
  return r;
}

}  // namespace

TEST_CASE("the worse row decides a pair") {
  const auto status = [](Status out, Status lse) {
    const AccuracyRow rows[] = {row("k", Tensor::out, out), row("k", Tensor::lse, lse)};
    return outcomes(rows).at(0).status();
  };
  CHECK(status(Status::pass, Status::pass) == Status::pass);
  CHECK(status(Status::pass, Status::fail) == Status::fail);
  CHECK(status(Status::unsupported, Status::unsupported) == Status::unsupported);
  CHECK(status(Status::skipped, Status::crash) == Status::crash);
  CHECK(status(Status::mistrusted, Status::fail) == Status::mistrusted);
  CHECK(status(Status::pass, Status::skipped) == Status::skipped);
  for (size_t s = 0; s < std::size(Names<Status>::kAll); ++s) {
    const auto any = static_cast<Status>(s);
    CHECK(is_red(any) == (any != Status::pass && any != Status::unsupported && any != Status::skipped));
  }
}

TEST_CASE("a pair that was run again counts by its last rows") {
  const AccuracyRow rows[] = {row("a", Tensor::out, Status::crash), row("a", Tensor::lse, Status::crash), row("b", Tensor::out, Status::pass),
                              row("a", Tensor::out, Status::pass)};
  const auto all = outcomes(rows);
  REQUIRE(all.size() == 2);
  CHECK(all[0].worst().kernel == "a");
  CHECK(all[0].status() == Status::pass);
  CHECK(all[0].lse == nullptr);  // of the first run, superseded
  CHECK(all[1].status() == Status::pass);
  ThroughputRow t[3];
  t[0].kernel = t[1].kernel = t[2].kernel = "k";
  t[0].cache = t[2].cache = "cold";
  t[1].cache = "warm";
  const auto last = latest(t);
  REQUIRE(last.size() == 2);
  CHECK(last[0] == &t[2]);
  CHECK(last[1] == &t[1]);
}

TEST_CASE("rows that were changed since they were written contradict themselves or each other") {
  const auto says = [](const std::function<void(AccuracyRow & out, AccuracyRow & lse)>& change, bool with_out = true, bool with_lse = true) {
    AccuracyRow out = row("k", Tensor::out, Status::pass), lse = row("k", Tensor::lse, Status::pass);
    for (AccuracyRow* r : {&out, &lse}) r->oracle_rows = 4, r->n_bad = 0, r->n_bad_rows = 0, r->guards_ok = true;
    change(out, lse);
    Outcome outcome;
    if (with_out) outcome.out = &out;
    if (with_lse) outcome.lse = &lse;
    return outcome.contradiction();
  };
  const auto nothing = [](AccuracyRow&, AccuracyRow&) {};
  CHECK(says(nothing).empty());
  CHECK(says([](AccuracyRow& out, AccuracyRow&) { out.declared = "p=bf16|lse_dtype=none"; }, true, false).empty());
  CHECK(
      says([](AccuracyRow& out, AccuracyRow&) { out.status = Status::unsupported, out.detail = "why", out.oracle_rows = {}; }, true, false).empty());
  CHECK(says([](AccuracyRow& out, AccuracyRow&) { out.status = Status::fail, out.detail = "why", out.n_bad_rows = 2; }).empty());
  CHECK(says(nothing, false) == "the row of out is missing");
  CHECK(says(nothing, true, false) == "the row of lse is missing");
  CHECK(says([](AccuracyRow& out, AccuracyRow&) { out.n_bad_rows = 2; }) == "out is pass, with 2 bad rows");
  CHECK(says([](AccuracyRow&, AccuracyRow& lse) { lse.oracle_rows = {}; }) == "lse is pass, and no row was judged");
  CHECK(says([](AccuracyRow&, AccuracyRow& lse) { lse.status = Status::fail; }) == "lse is fail, and its detail is ''");
  CHECK(says([](AccuracyRow& out, AccuracyRow&) { out.checks_run = "guards"; }) == "its two rows are not of one run");
  CHECK(says([](AccuracyRow& out, AccuracyRow& lse) { out.guards_ok = lse.guards_ok = false; }) == "both rows pass, and guards_ok is false");
}
