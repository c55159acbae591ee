// SPDX-License-Identifier: Apache-2.0
#include "harness/impostors.h"

#include <numeric>

#include "reference/exact.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// What the case accepts whatever is declared, or only by what is declared.
std::string accepted(const std::string& line, const Contract& contract = {}, bool as_declared = false) {
  const Inputs in = make_inputs(parse_line(line));
  std::vector<int64_t> tokens(static_cast<size_t>(in.tokens()));
  std::iota(tokens.begin(), tokens.end(), 0);
  ImpostorWatch watch(in, contract, false);
  if (needs_no_oracle(in.c.values)) {
    watch.add(nullptr, tokens);
  } else {
    OracleOptions options;
    options.score_errors = {score_error(contract, in.c)};
    const OracleBlock block = oracle(in, tokens, options);
    watch.add(&block, tokens);
  }
  return as_declared ? watch.accepted_as_declared() : watch.accepted();
}

}  // namespace

TEST_CASE("every family rejects the impostors that it promises to") {
  for (std::string_view values : Names<Values>::kAll) {
    if (values == "large_logits" || values == "tiny") continue;  // promise nothing
    INFO(values);
    CHECK(accepted("decode b=2 s_q=1 h_q=8 s_kv=600 topk=300 pattern=sorted values=" + std::string(values)) == "");
  }
  CHECK(promised(Values::tiny).empty());
}

TEST_CASE("a declaration so loose that it accepts anything is at fault, not the case") {
  Contract anything;
  anything.p = Rounding::e4m3;
  anything.p_scale = 1e-6f;  // P loses everything below its range
  constexpr const char* line = "decode b=2 s_q=1 h_q=8 s_kv=600 topk=300";
  CHECK(accepted(line, anything) == "");
  CHECK_THAT(accepted(line, anything, true), ContainsSubstring("zeros"));
  CHECK(accepted(line, {}, true) == "");
}

TEST_CASE("rows that cannot show an impostor do not count against the case") {
  CHECK(accepted("decode b=2 s_q=1 h_q=8 s_kv=1 topk=64 pattern=scattered") == "");  // one key: mean(V) is right
  CHECK(accepted("decode b=2 s_q=1 h_q=1 s_kv=600 topk=300") == "");                 // one head: no swap
}
