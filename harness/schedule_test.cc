// SPDX-License-Identifier: Apache-2.0
#include "harness/schedule.h"

#include "smla_catch.h"

using namespace smla;

namespace {

/// Two kernels, each with a base run and two runs of other inputs; the second is held against the base run.
const std::vector<ScheduledRun> kRuns = {{0, ""}, {0, "poison"}, {0, "permuted", true, true}, {1, ""}, {1, "permuted", true, true}, {1, "poison"}};
using Order = std::vector<size_t>;

Inputs inputs(const char* line) { return make_inputs(parse_line(line)); }

}  // namespace

TEST_CASE("base runs come first, then runs of the same inputs together, whichever kernel makes them") {
  const Schedule plan = schedule(kRuns, inputs("decode b=4 s_q=1 h_q=2 s_kv=64 topk=8"), 4);
  CHECK(plan.order == Order{0, 3, 1, 5, 2, 4});
  CHECK(plan.waits);
  CHECK(plan.chunk == 4);
  CHECK(plan.held_bytes == 6 * 4 * 2 * (512 * 2 + 4));
}

TEST_CASE("what would not fit comes in chunks of tokens that the oracle is asked for once") {
  const Inputs in = inputs("prefill b=1 s_q=1024 h_q=128 s_kv=1024 topk=8");  // 128 KiB a token, and six runs
  const Schedule plan = schedule(kRuns, in, 1024);
  CHECK(plan.waits);
  CHECK(plan.chunk < 1024);
  CHECK(plan.held_bytes <= int64_t{128} << 20);  // 64 MiB a kernel
  CHECK(plan.held_bytes > (int64_t{128} << 20) - 6 * 128 * (512 * 2 + 4));
  const std::vector<ScheduledRun> many(64, {0, ""});
  CHECK(schedule(many, in, 1024).held_bytes <= int64_t{256} << 20);
}

TEST_CASE("without an oracle to be asked they are judged as they come; base runs stay where something is held against them") {
  const Inputs small = inputs("decode b=4 s_q=1 h_q=2 s_kv=64 topk=8 values=needle");
  CHECK(schedule(kRuns, small, 4).waits);  // all fit

  const Inputs in = inputs("prefill b=1 s_q=96 h_q=128 s_kv=1024 topk=8 values=needle");  // 12 MiB a run of 24 a kernel
  const Schedule kept = schedule(kRuns, in, 96);
  CHECK(!kept.waits);
  CHECK(kept.keeps_base);
  CHECK(kept.chunk == 96);
  CHECK(kept.order == Order{0, 3, 1, 5, 2, 4});

  std::vector<ScheduledRun> alone = kRuns;
  for (ScheduledRun& run : alone) run.held_to_base = false;
  CHECK(!schedule(alone, in, 96).keeps_base);

  const Inputs large = inputs("prefill b=1 s_q=256 h_q=128 s_kv=1024 topk=8 values=needle");  // 32 MiB a run: two base runs and one more do not fit
  const Schedule turns = schedule(kRuns, large, 256);
  CHECK(turns.one_after_another);
  CHECK(turns.order == Order{0, 1, 2, 3, 5, 4});
  CHECK(turns.chunk < 256);
  CHECK(turns.held_bytes <= int64_t{48} << 20);
}
