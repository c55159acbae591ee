// SPDX-License-Identifier: Apache-2.0
#include "reference/budget.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <string>

#include "reference/decode.h"
#include "reference/test_kernel.h"
#include "smla_catch.h"

namespace smla {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Judged {
  int rows = 0, red = 0, red_lse = 0, unjudged = 0;
  double z_max = 0, rms_share = 0, lse_ratio = 0;  // the largest; rms_share = rms / its limit
  PooledRms pooled;
  bool ok() const { return red == 0 && pooled.ok(); }
};

/// Every row of the case, computed by the test's kernel, under the reference declaration or one that is given.
Judged judge(const Inputs& in, const test::Kernel& kernel, const Contract& contract = {}) {
  std::vector<int64_t> tokens(in.tokens());
  std::iota(tokens.begin(), tokens.end(), 0);
  const OracleBlock block = oracle(in, tokens, {.threads = 2, .score_errors = {score_error(contract, in.c)}});
  Judged judged;
  for (const int64_t t : tokens) {
    const test::Output output = test::run(in, t, kernel);
    for (int32_t h = 0; h < in.c.h_q; ++h) {
      const auto stats =
          judge_row(block, t * in.c.h_q + h, in, contract, kernel.splits > 1, {output.out.row(h).data(), size_t(in.c.d_v)}, output.lse[h]);
      ++judged.rows;
      judged.red += !stats.ok();
      judged.red_lse += !stats.lse_ok();
      judged.unjudged += !stats.judged;
      judged.pooled.add(stats, in.c.d_v);
      judged.lse_ratio = std::max(judged.lse_ratio, stats.lse_ratio);
      if (stats.judged)
        judged.z_max = std::max(judged.z_max, stats.z_max), judged.rms_share = std::max(judged.rms_share, stats.rms / stats.rms_limit);
    }
  }
  return judged;
}

Inputs inputs(const std::string& line) { return make_inputs(parse_line(line)); }

TEST_CASE("a healthy kernel is accepted, in every family, format and split") {
  const char* values = GENERATE("gaussian", "rising_max", "falling_max", "sawtooth_max", "late_max", "large_logits", "outliers", "tiny");
  const char* format = GENERATE("", " q_dtype=fp16 kv_format=fp16", " kv_format=fp8_656");
  const bool tile = std::string(values).ends_with("_max");
  for (const int topk : {1, 30, 400}) {
    const Inputs in = inputs("decode b=2 s_q=1 h_q=8 s_kv=500 topk=" + std::to_string(topk) + format + (tile ? " pattern=sorted" : "") +
                             " sink=finite values=" + values);
    for (const int splits : {1, 5}) {
      const auto judged = judge(in, {.splits = splits});
      CAPTURE(values, format, topk, splits, judged.z_max, judged.rms_share, judged.lse_ratio, judged.pooled.value());
      CHECK(judged.ok());
      CHECK(judged.unjudged <= (std::string(values) == "large_logits" ? judged.rows / 4 : 0));
    }
  }
}

TEST_CASE("a kernel that adds the rounded P to the row sum is accepted where it says so, its lse flagged where it does not") {
  const Inputs in = inputs("decode b=4 s_q=1 h_q=8 s_kv=3000 topk=100");
  CHECK(judge(in, {.row_sum_rounded = true}, {.row_sum = RowSum::rounded}).ok());
  CHECK(judge(in, {.row_sum_rounded = true}).red_lse > 10);
}

TEST_CASE("duplicates repeat their own error and are allowed to") {
  const Inputs in = inputs("decode b=4 s_q=2 h_q=8 s_kv=40 topk=400 pattern=duplicates");
  const auto judged = judge(in, {});
  CAPTURE(judged.rms_share, judged.z_max);
  CHECK(judged.ok());
}

TEST_CASE("planted faults are flagged") {
  using test::Fault;
  struct Planted {
    Fault fault;
    double share;  // of 64 rows, at least so many are red
  };
  const auto planted =
      GENERATE(Planted{Fault::key_dropped, 0.9}, Planted{Fault::key_doubled, 0.9}, Planted{Fault::key_of_a_neighbour, 0.9},
               Planted{Fault::v_of_one_key, 0.5}, Planted{Fault::rope_omitted, 1}, Planted{Fault::scale_wrong, 1}, Planted{Fault::heads_swapped, 1},
               Planted{Fault::one_head_zero, 1 / 8.}, Planted{Fault::zeros, 1}, Planted{Fault::mean_v, 1}, Planted{Fault::sink_ignored, 0.9},
               Planted{Fault::merge_by_average, 0.9}, Planted{Fault::lse_of_one_key_more, 1}, Planted{Fault::out_nan, 1 / 8.});
  const char* format = GENERATE("", " kv_format=fp8_656", " q_dtype=fp16 kv_format=fp16");
  const Inputs in = inputs("decode b=4 s_q=2 h_q=8 s_kv=2000 topk=256 sink=finite" + std::string(format));
  const auto judged = judge(in, {.fault = planted.fault, .splits = 3});
  CAPTURE(int(planted.fault), format, judged.red);
  CHECK(judged.red >= planted.share * judged.rows);
}

TEST_CASE("truncation instead of rounding shows in the pooled rms, at the latest") {
  using test::Fault;
  const Fault fault = GENERATE(Fault::out_truncated, Fault::p_truncated);
  const Inputs in = inputs("decode b=2 s_q=1 h_q=16 s_kv=3000 topk=2000");
  const auto judged = judge(in, {.fault = fault});
  CAPTURE(judged.pooled.value(), judged.red);
  CHECK_FALSE(judged.ok());
  CHECK(judge(in, {}).ok());
}

// `tiny` promises nothing: the exact answer of a flat fp16 row there rounds to zero.
TEST_CASE("zeros are rejected in every row of the families that promise it") {
  const char* values = GENERATE("gaussian", "rising_max", "falling_max", "sawtooth_max", "late_max", "outliers");
  const char* format = GENERATE("", " q_dtype=fp16 kv_format=fp16", " kv_format=fp8_656");
  const bool tile = std::string(values).ends_with("_max");
  for (const int topk : {2, 64, 2048}) {
    const Inputs in =
        inputs("decode b=1 s_q=1 h_q=4 s_kv=2048 topk=" + std::to_string(topk) + format + (tile ? " pattern=sorted" : "") + " values=" + values);
    const auto judged = judge(in, {.fault = test::Fault::zeros});
    CAPTURE(values, format, topk);
    CHECK(judged.red == judged.rows);
  }
}

TEST_CASE("beyond the linearisation a row is judged by the hull of v and by its lse") {
  const Inputs in = inputs("decode b=1 s_q=1 h_q=6 s_kv=300 topk=200 values=large_logits");
  // A declaration that rounds K makes errors of scores of 2^14 too large to linearise.
  const Contract contract{.k = Rounding::e4m3, .v = Rounding::e4m3};
  const auto healthy = judge(in, {}, contract);
  CHECK(healthy.unjudged > 0);
  CHECK(healthy.ok());
  CHECK(judge(in, {.fault = test::Fault::out_nan}, contract).red > 0);
  const int64_t token[] = {0};
  const OracleBlock block = oracle(in, token, {.score_errors = {score_error(contract, in.c)}});
  for (int64_t row = 0; row < block.rows(); ++row) {
    std::vector<float> out(in.c.d_v);
    for (int32_t d = 0; d < in.c.d_v; ++d) out[d] = static_cast<float>(1.2 * block.v_max(0, d) + 1);
    const auto stats = judge_row(block, row, in, contract, false, out, block.lse[row]);
    if (stats.judged) continue;
    CHECK_FALSE(stats.hull_ok);
    CHECK_FALSE(stats.ok());
    CHECK(stats.n_bad == in.c.d_v);
  }
}

// ---- The formulas against what they model, by Monte Carlo: every error of a declaration drawn uniformly from +- its bound.

struct Model {
  std::string line;
  Contract contract;
  bool split;
  double low, high;  // bounds of the observed rms of z
};

TEST_CASE("sigma and the random part of the lse limit are what simulated errors show") {
  const auto model =
      GENERATE(Model{"decode b=1 s_q=1 h_q=2 s_kv=400 topk=100", {}, false, 0.95, 1.03},                                        // P and out
               Model{"decode b=1 s_q=1 h_q=2 s_kv=400 topk=3 sink=finite", {}, false, 0.95, 1.05},                              // few keys
               Model{"decode b=1 s_q=1 h_q=2 s_kv=400 topk=100", {.p = Rounding::fp32, .acc = Acc::fp22}, false, 0.8, 1.05},    // scores
               Model{"decode b=1 s_q=1 h_q=2 s_kv=400 topk=100", {.k = Rounding::e4m3, .p = Rounding::fp32}, false, 0.6, 1.1},  // K
               Model{"decode b=1 s_q=1 h_q=2 s_kv=400 topk=100", {.q = Rounding::e4m3, .p = Rounding::fp32}, false, 0.4, 1},    // Q
               Model{"decode b=1 s_q=1 h_q=2 s_kv=400 topk=100", {.v = Rounding::e4m3}, false, 0.95, 1.05},
               Model{"decode b=1 s_q=1 h_q=2 s_kv=400 topk=100", {.p = Rounding::e4m3, .p_scale = 8}, false, 0.95, 1.05},  // with underflow
               Model{"decode b=1 s_q=1 h_q=2 s_kv=50 topk=40 pattern=duplicates", {.p = Rounding::fp16}, false, 0.95, 1.05},
               Model{"decode b=1 s_q=1 h_q=2 s_kv=400 topk=100", {.p = Rounding::fp32, .part = Rounding::bf16}, true, 0.7, 1.05});
  CAPTURE(model.line, declared(model.contract, FloatType::bf16));
  const Inputs in = inputs(model.line);
  const Case& c = in.c;
  const int64_t token[] = {0};
  const ScoreError error = score_error(model.contract, c);
  const OracleBlock block = oracle(in, token, {.score_errors = {error}});
  const std::vector<int32_t> slots = valid_slots(in, 0);
  const auto n = static_cast<int64_t>(slots.size());
  RowMatrixXd K(n, c.d_qk);
  std::vector<uint8_t> bytes(in.row_bytes);
  for (int64_t i = 0; i < n; ++i) kv_row(in, slots[i], bytes.data()), decode_row(c, bytes.data(), K.row(i).data());
  std::vector<int64_t> first(n);  // the entry whose errors entry i repeats
  for (int64_t i = 0; i < n; ++i) first[i] = std::find(slots.begin(), slots.end(), slots[i]) - slots.begin();

  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto draw = [&](int64_t count, double bound) {
    return Eigen::VectorXd(Eigen::VectorXd::NullaryExpr(count, [&] { return bound * uniform(generator); }));
  };
  // Operands: values of one significand (of 8) round alike, in K those under one scale.
  const auto round_alike = [&](Eigen::VectorXd& values, double bound, int64_t per_scale) {
    for (int64_t begin = 0; bound > 0 && begin < values.size(); begin += per_scale) {
      const Eigen::VectorXd drawn = draw(8, bound);
      for (int64_t d = begin; d < std::min(begin + per_scale, values.size()); ++d) {
        int exponent;
        values[d] *= 1 + drawn[static_cast<int>(16 * std::fabs(std::frexp(values[d], &exponent))) % 8];
      }
    }
  };
  const Roundoff u(model.contract, c, model.split);
  for (int32_t h = 0; h < c.h_q; ++h) {
    std::vector<uint16_t> bits(c.d_qk);
    Eigen::VectorXd q(c.d_qk);
    q_row(in, 0, h, bits.data());
    decode16(bits.data(), c.q_dtype, c.d_qk, q.data());
    const RowBudget budget = row_budget(block, h, in, model.contract, model.split);
    const double p_bound = p_underflow(model.contract, c) * block.p_max[h], sink = sink_of(in, h);
    double sum_z2 = 0, sum_lse2 = 0;
    const int trials = 150;
    for (int trial = 0; trial < trials; ++trial) {
      Eigen::VectorXd q_rounded = q;
      round_alike(q_rounded, error.u_q, c.d_qk);
      Eigen::VectorXd x(n), p(n), p_error = draw(n, 1), p_lost = draw(n, p_bound);
      RowMatrixXd V = K.leftCols(c.d_v);
      for (int64_t i = 0; i < n; ++i) {
        Eigen::VectorXd k = K.row(i).transpose();
        round_alike(k, error.u_k, 128);
        if (u.v > 0) V.row(i).array() *= 1 + draw(c.d_v, u.v).transpose().array();
        // What is left of sx: the accumulator's and fp32's share.
        const double own = ScoreError{0, 0, error.fp22}.sx2(q.squaredNorm() * k.squaredNorm() * c.sm_scale * c.sm_scale, 0, block.x_max[h], c.d_qk);
        x[i] = c.sm_scale * q_rounded.dot(k) + std::sqrt(own) * uniform(generator);
        if (first[i] != i) x[i] = x[first[i]], p_error[i] = p_error[first[i]], p_lost[i] = p_lost[first[i]];
      }
      const double sum = x.array().exp().sum(), lse = std::log(sum);
      p = x.array().exp() / (sum + std::exp(sink));
      p.array() *= 1 + u.p * p_error.array();
      p += p_lost;
      Eigen::VectorXd out = V.transpose() * p;
      for (int32_t d = 0; d < c.d_v; ++d) {
        // Partials: one for each half of the keys.
        const int64_t half = n / 2;
        const double parts[] = {p.head(half).dot(V.col(d).head(half)), p.tail(n - half).dot(V.col(d).tail(n - half))};
        double got = out[d];
        if (u.part > 0) got = parts[0] * (1 + u.part * uniform(generator)) + parts[1] * (1 + u.part * uniform(generator));
        got += u.out * std::fabs(block.out(h, d)) * uniform(generator);
        sum_z2 += std::pow((got - block.out(h, d)) / budget.sigma[d], 2);
      }
      sum_lse2 += std::pow((lse - block.lse[h]) / (budget.lse.random / 6), 2);
    }
    const double rms = std::sqrt(sum_z2 / trials / c.d_v), lse_rms = std::sqrt(sum_lse2 / trials);
    CAPTURE(h, rms, lse_rms, budget.score_share);
    CHECK(rms > model.low);
    CHECK(rms < model.high);
    if (error.fp22 || error.rounded()) {  // else the lse is exact in this model but for fp32's share
      CHECK(lse_rms > 0.8);
      CHECK(lse_rms < 1.15);
    }
  }
}

// ---- Conventions

TEST_CASE("lse: base, type, sink and empty rows as declared") {
  Inputs in = inputs("decode b=1 s_q=1 h_q=4 s_kv=400 topk=50 pattern=contiguous");
  const float inf = std::numeric_limits<float>::infinity();
  in.sink = {0.5f, inf, -inf, 3};
  const int64_t token[] = {0};
  const OracleBlock block = oracle(in, token);
  const auto ratio = [&](int64_t row, double lse, const Contract& contract) {
    std::vector<float> out(in.c.d_v);
    return judge_row(block, row, in, contract, false, out, lse).lse_ratio;
  };
  const double lse = block.lse[0], with_sink = std::log(std::exp(lse) + std::exp(0.5));
  CHECK(ratio(0, lse, {}) == 0);
  CHECK(ratio(0, lse + 1e-4, {}) > 1);
  CHECK(ratio(0, lse / std::numbers::ln2, {}) > 1);
  CHECK(ratio(0, lse / std::numbers::ln2, {.lse_base = LseBase::two}) < 1e-3);
  CHECK(ratio(0, lse, {.lse_base = LseBase::two}) > 1);
  CHECK(ratio(0, with_sink, {}) > 1);
  CHECK(ratio(0, with_sink, {.sink_in_lse = true}) < 1e-3);
  CHECK(ratio(0, lse, {.sink_in_lse = true}) > 1);
  CHECK(ratio(1, inf, {.sink_in_lse = true}) == 0);
  CHECK(ratio(1, 1e30, {.sink_in_lse = true}) == kInfinity);
  CHECK(ratio(2, block.lse[2], {.sink_in_lse = true}) == 0);
  CHECK(ratio(0, NAN, {}) == kInfinity);
  CHECK(ratio(0, -inf, {}) == kInfinity);
  CHECK(ratio(0, NAN, {.lse_dtype = LseType::none}) == 0);
  // bf16 keeps 8 bits: half an ulp is allowed, a whole one is not.
  const double ulp = std::ldexp(1.0, std::ilogb(lse) - 7);
  CHECK(ratio(0, lse + 0.499 * ulp, {.lse_dtype = LseType::bf16}) < 1);
  CHECK(ratio(0, lse + ulp, {.lse_dtype = LseType::bf16}) > 1.9);
  CHECK(ratio(0, lse + 0.499 * ulp, {}) > 100);
}

/// A row as a kernel gives it whose scores are all off by `moved`, and whose arithmetic is else exact but for the rounding of out.
RowStats moved_row(const Inputs& in, const OracleBlock& block, int64_t row, const Contract& contract, double moved, double channel_0 = 0) {
  const double sink = sink_of(in, row % block.h_q), lse = block.lse[row], kept = (1 + std::exp(sink - lse)) / (1 + std::exp(sink - lse - moved));
  std::vector<float> out(block.d_v);
  for (int32_t d = 0; d < block.d_v; ++d)
    out[d] = test::round16(static_cast<float>(block.out(row, d) * kept + (d == 0 ? channel_0 : 0)), in.c.q_dtype);
  return judge_row(block, row, in, contract, false, out, static_cast<float>(lse + moved));
}

TEST_CASE("what moves a row as a whole is one draw: six deviations of it pass, and the rest of the row is judged as ever") {
  const Contract rounds_q = {.q = Rounding::e4m3};
  const int topk = GENERATE(1, 3, 200);
  const Inputs in = inputs("decode b=6 s_q=1 h_q=8 s_kv=300 sink=finite kv_format=fp8_656 topk=" + std::to_string(topk));
  std::vector<int64_t> tokens(in.tokens());
  std::iota(tokens.begin(), tokens.end(), 0);
  const OracleBlock block = oracle(in, tokens, {.threads = 2, .score_errors = {score_error(rounds_q, in.c)}});
  int judged = 0, beyond_the_old_rule = 0;
  for (int64_t row = 0; row < block.rows(); ++row) {
    const RowBudget budget = row_budget(block, row, in, rounds_q, false);
    const double deviation = budget.lse.random / 6;
    if (block.scores_for(score_error(rounds_q, in.c)).beyond[row]) continue;
    ++judged;
    CAPTURE(topk, row, deviation, budget.common_min, budget.common_max);
    for (const double deviations : {-5.8, -3.8, 3.8, 5.8}) {
      const RowStats stats = moved_row(in, block, row, rounds_q, deviations * deviation);
      CHECK(stats.ok());
      CHECK_FALSE(moved_row(in, block, row, {}, deviations * deviation).ok());  // who does not declare it may not
      // Another channel wrong by 7 sigma shows through the common part.
      CHECK_FALSE(moved_row(in, block, row, rounds_q, deviations * deviation, 7 * budget.sigma[0]).out_ok());
      beyond_the_old_rule += std::fabs(stats.common - 1) * std::sqrt(block.out.row(row).squaredNorm()) >
                             3.5 * std::sqrt(Eigen::Map<const Eigen::ArrayXd>(budget.sigma.data(), block.d_v).square().sum());
    }
    for (const double deviations : {-9.0, 9.0}) CHECK_FALSE(moved_row(in, block, row, rounds_q, deviations * deviation).lse_ok());
  }
  CHECK(judged > 5);
  if (topk == 1) CHECK(beyond_the_old_rule > 0);
}

TEST_CASE("without a sink nothing moves a row as a whole") {
  const Contract rounds_q = {.q = Rounding::e4m3};
  const Inputs in = inputs("decode b=2 s_q=1 h_q=8 s_kv=300 topk=30 kv_format=fp8_656");
  const OracleBlock block = oracle(in, std::vector<int64_t>{0, 1}, {.threads = 2, .score_errors = {score_error(rounds_q, in.c)}});
  for (int64_t row = 0; row < block.rows(); ++row) {
    const RowBudget budget = row_budget(block, row, in, rounds_q, false);
    CHECK(budget.common_min == 1);
    CHECK(budget.common_max == 1);
    CHECK(moved_row(in, block, row, rounds_q, 0).common == 1);
  }
}

TEST_CASE("an empty row is zeros exactly and an lse by the contract") {
  Inputs in = inputs("decode b=1 s_q=1 h_q=3 s_kv=400 topk=50");
  std::fill(in.indices.begin(), in.indices.end(), -1);
  const float inf = std::numeric_limits<float>::infinity();
  in.sink = {2, inf, -inf};
  const int64_t token[] = {0};
  const OracleBlock block = oracle(in, token);
  std::vector<float> out(in.c.d_v);
  const auto ok = [&](int64_t row, double lse, const Contract& contract) { return judge_row(block, row, in, contract, true, out, lse).ok(); };
  CHECK(ok(0, -inf, {}));
  CHECK_FALSE(ok(0, inf, {}));
  CHECK_FALSE(ok(0, 0, {}));
  CHECK_FALSE(ok(0, NAN, {}));
  CHECK_FALSE(ok(0, -1e30, {}));
  CHECK(ok(0, inf, {.empty_lse = EmptyLse::pos_inf}));
  CHECK_FALSE(ok(0, -inf, {.empty_lse = EmptyLse::pos_inf}));
  CHECK(ok(0, -1e30, {.empty_lse = EmptyLse::large_negative}));
  CHECK_FALSE(ok(0, -inf, {.empty_lse = EmptyLse::large_negative}));
  CHECK_FALSE(ok(0, -1e19, {.empty_lse = EmptyLse::large_negative}));
  CHECK_FALSE(ok(0, NAN, {.empty_lse = EmptyLse::large_negative}));
  CHECK(ok(0, NAN, {.lse_dtype = LseType::none, .empty_lse = EmptyLse::large_negative}));
  CHECK(ok(0, 2, {.sink_in_lse = true}));
  CHECK(ok(0, 2 / std::numbers::ln2, {.lse_base = LseBase::two, .sink_in_lse = true}));
  CHECK_FALSE(ok(0, -inf, {.sink_in_lse = true}));
  CHECK(ok(1, inf, {.sink_in_lse = true}));
  CHECK(ok(2, -inf, {.sink_in_lse = true}));  // no sink at all
  const auto stats = judge_row(block, 0, in, {}, true, out, -inf);
  CHECK(stats.empty);
  CHECK_FALSE(stats.pooled);
  CHECK(stats.z_max == 0);
  out[9] = 1e-30f;
  CHECK_FALSE(ok(0, -inf, {}));
  CHECK(judge_row(block, 0, in, {}, true, out, -inf).z_max == inf);
  out[9] = NAN;
  CHECK_FALSE(ok(0, -inf, {}));
  CHECK(judge_row(block, 0, in, {}, true, out, -inf).n_nonfinite_mismatch == 1);
}

TEST_CASE("a declared rounding counts only where it rounds") {
  Case c;
  c.kv_format = KvFormat::bf16;
  CHECK(score_error({.q = Rounding::bf16, .k = Rounding::bf16}, c) == ScoreError{});
  CHECK(score_error({.q = Rounding::q, .k = Rounding::fp32}, c) == ScoreError{});
  CHECK(score_error({.q = Rounding::e4m3, .acc = Acc::fp22}, c) == ScoreError{0x1p-4, 0, true});
  c.kv_format = KvFormat::fp8_656;
  CHECK(score_error({.k = Rounding::bf16}, c) == ScoreError{0, 0x1p-8, false});
  CHECK(Roundoff({.v = Rounding::bf16}, c, false).v == 0x1p-8);
  c.scales = Scales::pow2;  // 4 bits times a power of two
  CHECK(score_error({.k = Rounding::bf16}, c) == ScoreError{});
  CHECK(Roundoff({.v = Rounding::bf16}, c, false).v == 0);
  c.rope_dtype = FloatType::fp16;
  CHECK(score_error({.k = Rounding::bf16}, c) == ScoreError{0, 0x1p-8, false});
  CHECK(Roundoff({.part = Rounding::bf16}, c, false).part == 0);
  CHECK(Roundoff({.part = Rounding::bf16}, c, true).part == 0x1p-8);
  CHECK(Roundoff({.part = Rounding::fp32}, c, true).part == 0);
}

}  // namespace
}  // namespace smla
