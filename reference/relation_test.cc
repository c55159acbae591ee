// SPDX-License-Identifier: Apache-2.0
#include "reference/relation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/test_kernel.h"
#include "smla_catch.h"

namespace smla {
namespace {

Answer answer_of(const Inputs& in, const OracleBlock& block, int32_t h, const test::Kernel& kernel) {
  const Contract contract;
  const bool split = kernel.splits > 1;
  const test::Output output = test::run(in, 0, kernel);
  return answer({output.out.row(h).data(), size_t(in.c.d_v)}, output.lse[h], contract, row_budget(block, h, in, contract, split));
}

const int64_t kToken[] = {0};

TEST_CASE("two healthy runs of one row agree, a faulty one does not") {
  const Inputs in = make_inputs(parse_line("decode b=1 s_q=1 h_q=4 s_kv=900 topk=500 sink=finite"));
  Inputs reversed = in;
  std::reverse(reversed.indices.begin(), reversed.indices.end());
  const OracleBlock block = oracle(in, kToken);
  for (int32_t h = 0; h < in.c.h_q; ++h) {
    const Answer base = answer_of(in, block, h, {});
    for (const Answer& other : {answer_of(reversed, block, h, {}), answer_of(in, block, h, {.splits = 7})}) {
      const Relation relation = relate(base, other);
      CAPTURE(h, relation.z_max, relation.lse_ratio);
      CHECK(relation.ok());
    }
    CHECK_FALSE(relate(base, answer_of(in, block, h, {.fault = test::Fault::key_dropped})).ok());
    CHECK(relate(base, base).z_max == 0);
    Answer broken = base;
    broken.out[3] = NAN;
    CHECK(std::isinf(relate(base, broken).z_max));
    broken = base;
    broken.lse = NAN;
    CHECK_FALSE(relate(base, broken).ok());
  }
}

TEST_CASE("two halves merged by their lse are the whole, with a sink on either side of them") {
  Inputs whole = make_inputs(parse_line("decode b=1 s_q=1 h_q=4 s_kv=900 topk=400"));
  whole.sink = {-std::numeric_limits<float>::infinity(), 3, 8, 30};
  const bool sink_in_lse = GENERATE(false, true);
  Inputs first = whole, second = whole;
  std::fill(first.indices.begin() + 100, first.indices.end(), -1);
  std::fill(second.indices.begin(), second.indices.begin() + 100, -1);
  const OracleBlock w = oracle(whole, kToken), a = oracle(first, kToken), b = oracle(second, kToken);
  const auto with_convention = [&](Answer each, double sink) {
    if (sink_in_lse) each.lse = std::log(std::exp(each.lse) + std::exp(sink));
    return each;
  };
  for (int32_t h = 0; h < 4; ++h) {
    const double sink = whole.sink[h];
    const Answer one = with_convention(answer_of(first, a, h, {}), sink), two = with_convention(answer_of(second, b, h, {}), sink);
    const Answer all = with_convention(answer_of(whole, w, h, {}), sink), merged = merge(one, two, sink, sink_in_lse);
    const Relation relation = relate(all, merged);
    CAPTURE(h, relation.z_max, relation.lse_ratio);
    CHECK(relation.ok());
    CHECK_FALSE(relate(all, one).ok());
    // Merging is exact where the halves are.
    const auto exact = [&](const OracleBlock& block, const Inputs& in) {
      const auto row = block.out.row(h);
      return with_convention({{row.begin(), row.end()}, block.lse[h], row_budget(block, h, in, {}, false)}, sink);
    };
    const Answer both = merge(exact(a, first), exact(b, second), sink, sink_in_lse), truth = exact(w, whole);
    CHECK(both.lse == Approx(truth.lse).epsilon(1e-13));
    for (int32_t d = 0; d < whole.c.d_v; ++d) REQUIRE(both.out[d] == Approx(truth.out[d]).epsilon(1e-10).margin(1e-13));
    // Its budget is of the size of the whole's.
    CHECK(both.budget.sigma[5] < 3 * truth.budget.sigma[5]);
    CHECK(both.budget.sigma[5] > truth.budget.sigma[5] / 3);
    CHECK(both.budget.lse.limit() < 2 * truth.budget.lse.limit());
  }
}

}  // namespace
}  // namespace smla
