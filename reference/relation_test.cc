// SPDX-License-Identifier: Apache-2.0
#include "reference/relation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
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

TEST_CASE("halves whose lse is rounded to bf16 merge with weights that are far off, and are allowed to") {
  // lse of 1028 each, which bf16 rounds to multiples of 8: the weights are 1 and 3e-4 instead of 1/2 each.
  const auto half = [](float value, double lse) {
    Answer answer;
    answer.out = {value, 1};
    answer.lse = lse;
    answer.budget.sigma = {1e-3, 1e-3};
    answer.budget.lse = {.random = 1e-3, .fixed = 4};
    return answer;
  };
  Answer whole = half(0, 1028 + std::numbers::ln2);
  const Answer one = half(-1, 1024), two = half(1, 1032);
  const Answer merged = merge(one, two, -std::numeric_limits<double>::infinity(), false);
  CHECK(merged.out[0] > 0.99);
  CHECK(relate(whole, merged).z_max < 6);
  whole.out[1] = 1.1f;  // where both halves agree the weights do not matter
  CHECK(relate(whole, merged).z_max > 6);
  // An exact lse leaves no such room.
  Answer exact_one = one, exact_two = two;
  exact_one.budget.lse.fixed = exact_two.budget.lse.fixed = 1e-6;
  whole.out[1] = 1;
  CHECK(relate(whole, merge(exact_one, exact_two, -std::numeric_limits<double>::infinity(), false)).z_max > 6);
}

}  // namespace
}  // namespace smla
