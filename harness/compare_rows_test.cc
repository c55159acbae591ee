// SPDX-License-Identifier: Apache-2.0
// The comparator against planted faults. What is wrong with one row must show whole, however many healthy rows stand around it.
#include "harness/compare_rows.h"

#include <cmath>
#include <numeric>

#include "cases/values.h"
#include "reference/decode.h"
#include "smla_catch.h"

using namespace smla;

namespace {

/// A kernel that makes no error but the rounding of its output.
struct Healthy {
  explicit Healthy(const std::string& line) : in(make_inputs(parse_line(line))) {
    tokens.resize(static_cast<size_t>(in.tokens()));
    std::iota(tokens.begin(), tokens.end(), 0);
    block = oracle(in, tokens);
    for (int64_t row = 0; row < block.rows(); ++row) {
      for (int32_t d = 0; d < block.d_v; ++d) out.push_back(to_bf16(static_cast<float>(block.out(row, d))));
      lse.push_back(static_cast<float>(block.lse[row]));
    }
  }
  RowFigures compare(const Contract& contract = {}) const {
    RowComparer comparer(in, contract, false);
    comparer.add(&block, tokens, {out, lse});
    return comparer.figures();
  }
  uint16_t& at(int64_t row, int32_t d) { return out[static_cast<size_t>(row * in.c.d_v + d)]; }

  Inputs in;
  std::vector<int64_t> tokens;
  OracleBlock block;
  std::vector<uint16_t> out;
  std::vector<float> lse;
};

constexpr const char* kSmall = "decode b=4 s_q=2 h_q=8 s_kv=300 topk=100";

}  // namespace

TEST_CASE("a kernel that only rounds is within every limit") {
  const RowFigures f = Healthy(kSmall).compare();
  CHECK(f.rows == 64);
  CHECK(f.out.n_elem == 64 * 512);
  CHECK(f.out.n_bad_rows == 0);
  CHECK(f.lse.n_bad_rows == 0);
  CHECK(f.out.n_nonfinite_mismatch == 0);
  CHECK(f.out.z_max > 0);
  CHECK(f.out.z_max < 6);
  CHECK(f.out.ulp_err_max <= 0.501);
  CHECK(f.out.rel_err_max <= 0x1p-8);
  CHECK(f.out.cos_diff_worst_row < 1e-4);
  CHECK(f.pooled.rows + f.rows_unjudged <= 64);
}

TEST_CASE("one row of zeros is one bad row, and no figure of it is diluted") {
  RowFigures figures[2];
  const char* lines[] = {kSmall, "decode b=32 s_q=2 h_q=8 s_kv=300 topk=100"};
  for (int i = 0; i < 2; ++i) {
    Healthy kernel(lines[i]);
    for (int32_t d = 0; d < 512; ++d) kernel.at(21, d) = 0;
    figures[i] = kernel.compare();
  }
  for (const RowFigures& f : figures) {
    CHECK(f.out.n_bad_rows == 1);
    CHECK(f.out.cos_diff_worst_row == 1);
    CHECK(f.out.rel_err_max == 1);
    CHECK(f.row_rms_share_max > 1);
    CHECK(f.out.worst_index.size() == 4);
    CHECK(f.lse.n_bad_rows == 0);
  }
  CHECK(figures[0].out.worst_index[0] == 1);  // row 21 = token 2 (b 1, s_q 0), head 5
  CHECK(figures[0].out.worst_index[1] == 0);
  CHECK(figures[0].out.worst_index[2] == 5);
  CHECK(figures[0].out.worst_got == 0);
  CHECK(figures[0].out.worst_ref != 0);
}

TEST_CASE("a NaN, an infinity and a wrong element are found where they are") {
  Healthy kernel(kSmall);
  kernel.at(3, 7) = 0x7fc0;
  RowFigures f = kernel.compare();
  CHECK(f.out.n_nonfinite_mismatch == 1);
  CHECK(f.out.n_bad_rows == 1);
  CHECK(f.out.worst_index == std::vector<int64_t>{0, 0, 3, 7});
  CHECK(std::isnan(f.out.worst_got));
  for (double error : {f.out.abs_err_max, f.out.rel_err_max, f.out.ulp_err_max, f.out.cos_diff_worst_row, f.out.z_max, f.out.tightest_atol,
                       f.z_row_rms_max, f.row_rms_share_max, f.pooled_rms()})
    CHECK(std::isinf(error));  // never the largest of the others, as if that bounded it

  Healthy other(kSmall);
  other.at(63, 511) = to_bf16(static_cast<float>(2 * other.block.out(63, 511) + 1));
  f = other.compare();
  CHECK(f.out.n_bad == 1);
  CHECK(f.out.n_bad_rows == 1);
  CHECK(f.out.worst_index == std::vector<int64_t>{3, 1, 7, 511});
  CHECK(f.out.z_max > 6);
}

TEST_CASE("swapped heads are two bad rows") {
  Healthy kernel(kSmall);
  for (int32_t d = 0; d < 512; ++d) std::swap(kernel.at(8, d), kernel.at(9, d));
  CHECK(kernel.compare().out.n_bad_rows == 2);
}

TEST_CASE("the tightest tolerance passes, and nothing tighter does") {
  Healthy kernel(kSmall);
  kernel.at(5, 5) = to_bf16(static_cast<float>(kernel.block.out(5, 5) + 0.25));
  const RowFigures f = kernel.compare();
  CHECK(f.out.tightest_rtol == 0x1p-7);
  double least = 0;
  for (int64_t row = 0; row < kernel.block.rows(); ++row)
    for (int32_t d = 0; d < 512; ++d) {
      const double ref = kernel.block.out(row, d);
      least = std::max(least, std::abs(decode_bf16(kernel.at(row, d)) - ref) - f.out.tightest_rtol * std::abs(ref));
    }
  CHECK(f.out.tightest_atol == least);
  CHECK(least > 0.2);
}

TEST_CASE("lse: a small error, another base, an infinity and none at all") {
  Healthy kernel(kSmall);
  kernel.lse[10] += 1e-3f;
  RowFigures f = kernel.compare();
  CHECK(f.lse.n_bad_rows == 1);
  CHECK(f.out.n_bad_rows == 0);
  CHECK(f.lse.worst_index == std::vector<int64_t>{0, 1, 2});
  CHECK(f.lse_err_max == Approx(1e-3).margin(1e-5));
  CHECK(f.lse.worst_got - f.lse.worst_ref == Approx(1e-3).margin(1e-5));

  Healthy two(kSmall);
  Contract base2;
  base2.lse_base = LseBase::two;
  CHECK(two.compare(base2).lse.n_bad_rows == 64);  // base e where base 2 was declared
  for (float& lse : two.lse) lse /= std::log(2.0f);
  CHECK(two.compare(base2).lse.n_bad_rows == 0);

  Healthy infinite(kSmall);
  infinite.lse[0] = -std::numeric_limits<float>::infinity();
  CHECK(infinite.compare().lse.n_nonfinite_mismatch == 1);

  Healthy silent(kSmall);
  silent.lse.clear();
  Contract none;
  none.lse_dtype = LseType::none;
  CHECK(silent.compare(none).lse.n_elem == 0);
}

TEST_CASE("a loose declaration widens the budget but not the reference figure") {
  Healthy kernel(kSmall);
  for (int64_t row = 0; row < kernel.block.rows(); ++row)
    for (int32_t d = 0; d < 512; ++d) kernel.at(row, d) = to_bf16(static_cast<float>(kernel.block.out(row, d) * (d % 2 == 0 ? 1.02 : 0.98)));
  const RowFigures strict = kernel.compare();
  Contract loose;
  loose.p = Rounding::e4m3;
  loose.p_max = PMax::any;
  const RowFigures declared = kernel.compare(loose);
  CHECK(declared.out.z_max < strict.out.z_max);
  CHECK(declared.z_row_rms_reference == Approx(strict.z_row_rms_max));
  CHECK(declared.z_row_rms_max < declared.z_row_rms_reference);
}

TEST_CASE("figures do not depend on the number of threads") {
  Healthy kernel("decode b=9 s_q=1 h_q=16 s_kv=300 topk=100 values=tiny");  // flat rows: they are pooled
  kernel.at(40, 3) = to_bf16(1.0f);
  kernel.at(100, 511) = to_bf16(1e30f);
  kernel.lse[7] += 1;
  const auto figures = [&](int threads) {
    RowComparer comparer(kernel.in, {}, false);
    comparer.add(&kernel.block, kernel.tokens, {kernel.out, kernel.lse}, threads);
    return comparer.figures();
  };
  const RowFigures one = figures(1), many = figures(5);
  CHECK(one.out.n_bad_rows == 2);
  CHECK(one.lse.n_bad_rows == 1);
  CHECK(one.rows == 9 * 16);
  CHECK(one.pooled.rows > 100);
  for (const RowFigures* f : {&one, &many}) {
    CHECK(f->out.worst_index == std::vector<int64_t>{100 / 16, 0, 100 % 16, 511});
    CHECK(f->lse.worst_index == std::vector<int64_t>{0, 0, 7});
  }
  CHECK(many.out.n_elem == one.out.n_elem);
  CHECK(many.out.n_bad == one.out.n_bad);
  CHECK(many.out.z_max == one.out.z_max);
  CHECK(many.out.abs_err_max == one.out.abs_err_max);
  CHECK(many.out.worst_got == one.out.worst_got);
  CHECK(many.pooled.sum_z2 == one.pooled.sum_z2);
  CHECK(many.lse_ratio_max == one.lse_ratio_max);
}

TEST_CASE("an empty row answers zeros") {
  Healthy kernel("decode b=6 s_q=1 h_q=4 s_kv=300 topk=100 pattern=all_invalid");
  int64_t empty = -1;
  for (int64_t row = 0; row < kernel.block.rows(); ++row)
    if (kernel.block.n[row] == 0) empty = row;
  REQUIRE(empty >= 0);
  CHECK(kernel.compare().out.n_bad_rows == 0);
  kernel.at(empty, 100) = to_bf16(1e-30f);
  const TensorFigures out = kernel.compare().out;
  CHECK(out.n_bad_rows == 1);
  CHECK(std::isinf(out.z_max));  // and it is the worst row: healthy ones have errors, too
  CHECK(out.worst_index == std::vector<int64_t>{empty / 4, 0, empty % 4, 100});
}

TEST_CASE("needle cases are judged without the oracle, and a wrong row is explained") {
  const Inputs in = make_inputs(parse_line("prefill b=1 s_q=32 h_q=16 s_kv=1000 topk=512 values=needle"));
  std::vector<uint16_t> out(static_cast<size_t>(in.c.h_q) * 512);
  std::vector<float> lse(static_cast<size_t>(in.c.h_q));
  RowComparer comparer(in, {}, false);
  const int64_t token = in.tokens() - 1;
  comparer.add(nullptr, std::span(&token, 1), {out, lse});
  CHECK(comparer.figures().out.n_bad_rows == in.c.h_q);  // zeros
  CHECK(!comparer.figures().diagnosis.empty());
  CHECK(std::abs(comparer.figures().out.worst_ref) >= 1);
}
