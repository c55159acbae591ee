// SPDX-License-Identifier: Apache-2.0
#include "cases/values.h"

#include <immintrin.h>

#include <cmath>
#include <vector>

#include "cases/case.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// Every family and format that may go together, as short case lines.
std::vector<Case> all_kinds() {
  std::vector<Case> cases;
  for (const std::string format : {"bf16", "fp16", "fp8_656"})
    for (const std::string q : {"bf16", "fp16"})
      for (const std::string_view values : Names<Values>::kAll)
        for (const std::string scales : {"arbitrary", "pow2"}) {
          try {
            cases.push_back(parse_line("decode b=3 s_q=2 h_q=5 s_kv=700 topk=600 q_dtype=" + q + " kv_format=" + format + " scales=" + scales +
                                       " pattern=sorted values=" + std::string(values)));
          } catch (const UsageError&) {}
        }
  return cases;
}

}  // namespace

TEST_CASE("rows are their elements, for every family and format") {
  const std::vector<Case> cases = all_kinds();
  REQUIRE(cases.size() == 2 * 11 + 2 * (8 + 11));  // fp8_656 with arbitrary scales has no needle, tracer, exact_mean
  for (const Case& c : cases) {
    INFO(to_line(c));
    const ValueSpec s = value_spec(c);
    const bool fp8 = c.kv_format == KvFormat::fp8_656;
    for (const int64_t key : {int64_t{0}, int64_t{699}, int64_t{7654321}}) {
      const int32_t position = static_cast<int32_t>(key % 700);
      std::vector<uint8_t> row(row_bytes(c.kv_format, c.d_qk)), built(row.size());
      write_kv_row(s, key, position, row.data());
      for (int32_t channel = 0; channel < c.d_qk; ++channel) {
        if (fp8 && channel < 512) built[channel] = kv_code(s, key, channel);
        else {
          const uint16_t value = kv_value(s, key, position, channel);
          memcpy(built.data() + (fp8 ? 528 + 2 * (channel - 512) : 2 * channel), &value, 2);
        }
      }
      for (int32_t group = 0; fp8 && group < 4; ++group) {
        const float scale = kv_scale(s, key, group);
        memcpy(built.data() + 512 + 4 * group, &scale, 4);
      }
      REQUIRE(row == built);
    }
    for (const int64_t row_index : {0, 7, 29}) {
      std::vector<uint16_t> row(c.d_qk), built(c.d_qk);
      write_q_row(s, row_index, 1234567, row.data());
      for (int32_t channel = 0; channel < c.d_qk; ++channel) built[channel] = q_value(s, row_index, 1234567, channel);
      REQUIRE(row == built);
    }
  }
}
