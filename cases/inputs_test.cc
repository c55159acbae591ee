// SPDX-License-Identifier: Apache-2.0
#include "cases/inputs.h"

#include "smla_catch.h"

using namespace smla;

TEST_CASE("every pattern makes lists of valid slots of the row's own request") {
  for (const std::string_view pattern : Names<Pattern>::kAll) {
    const std::string kv = pattern == "short_context" || pattern == "dense" ? "300" : "1500";
    const std::string more = pattern == "stale_tail" ? " topk_length=1" : "";
    const Inputs in =
        make_inputs(parse_line("decode b=6 s_q=2 h_q=2 s_kv=" + kv + " topk=512" + more + " page_size=64 pattern=" + std::string(pattern)));
    INFO(pattern);
    REQUIRE(in.valid_keys > 0);
    for (int64_t t = 0; t < in.tokens(); ++t)
      for (int32_t i = 0; i < in.k_t(t); ++i) {
        const int32_t index = in.indices[t * in.c.topk + i];
        if (!in.is_valid(index)) continue;
        const int32_t r = static_cast<int32_t>(t / 2), page = index / 64, position = in.position(index);
        REQUIRE(position < in.seq_lens[r] - 2 + t % 2 + 1);
        REQUIRE(in.block_table[r * in.max_pages + position / 64] == page);
      }
  }
}
