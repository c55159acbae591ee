// SPDX-License-Identifier: Apache-2.0
#include "harness/checks.h"

#include "cases/needle.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("no check's run takes the key away that a needle or tracer row points at: its answer would not be exact any more") {
  const char* line = GENERATE("decode b=50 s_q=1 h_q=2 s_kv=64 topk=20 topk_length=1 values=tracer",
                              "decode b=50 s_q=1 h_q=2 s_kv=64 topk=3 topk_length=1 values=needle sink=mixed",
                              "decode b=9 s_q=2 h_q=2 s_kv=300 topk=150 values=needle pattern=interleaved_invalid page_size=16");
  const Inputs base = make_inputs(parse_line(line), {});
  int runs = 0;
  for (const Check& check : checks())
    for (const CheckRun& run : check.runs(base, Contract{})) {
      const Inputs in = make_inputs(base.c, run.variant);
      INFO(check.name << " " << to_word(run.variant) << ": " << line);
      int lost = 0;
      for (int64_t t = 0; t < in.tokens(); ++t)
        for (int32_t h = 0; h < in.c.h_q; ++h) {
          int32_t multiplicity = 0;
          lost += needle_slot(in, t, h, &multiplicity) >= 0 && multiplicity == 0;
        }
      CHECK(lost == 0);
      ++runs;
    }
  CHECK(runs > 10);
}
