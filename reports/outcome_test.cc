// SPDX-License-Identifier: Apache-2.0
#include "reports/outcome.h"

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
