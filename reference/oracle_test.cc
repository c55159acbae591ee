// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

#include "reference/decode.h"
#include "smla_catch.h"

namespace smla {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> k_of(const Inputs& in, int64_t slot) {
  std::vector<uint8_t> bytes(in.row_bytes);
  std::vector<double> values(in.c.d_qk);
  kv_row(in, slot, bytes.data());
  decode_row(in.c, bytes.data(), values.data());
  return values;
}

std::vector<double> q_of(const Inputs& in, int64_t t, int32_t h) {
  std::vector<uint16_t> bits(in.c.d_qk);
  std::vector<double> values(in.c.d_qk);
  q_row(in, t, h, bits.data());
  decode16(bits.data(), in.c.q_dtype, in.c.d_qk, values.data());
  return values;
}

std::vector<int64_t> all_tokens(const Inputs& in) {
  std::vector<int64_t> tokens(in.tokens());
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// One row by the definition, in loops over scalars of long double.
struct Row {
  std::vector<long double> out, A, C, k_mean, sum_v2, v_min, v_max, v_mean;
  std::vector<std::vector<long double>> B;
  std::vector<long double> b, lse_var;
  long double lse = -kInfinity, x_max = -kInfinity, n = 0, p_max = 0, pt_max = 0, sum_pt2 = 0, lost = 0;
};
Row by_definition(const Inputs& in, int64_t t, int32_t h, const std::vector<ScoreError>& errors) {
  const int32_t d_v = in.c.d_v, k_t = in.topk_length.empty() ? in.c.topk : std::clamp(in.topk_length[t], 0, in.c.topk);
  std::vector<int32_t> slots;
  std::map<int32_t, int> times;
  for (int32_t k = 0; k < k_t; ++k)
    if (const int32_t slot = in.indices[t * in.c.topk + k]; slot >= 0 && slot < in.num_slots) slots.push_back(slot), ++times[slot];
  Row row;
  const auto zero = std::vector<long double>(d_v);
  row.out = row.A = row.C = row.sum_v2 = row.v_mean = zero;
  row.v_min = row.v_max = zero;
  row.k_mean.resize(in.c.d_qk);
  row.B.assign(errors.size(), zero);
  row.b = row.lse_var = std::vector<long double>(errors.size());
  row.n = static_cast<long double>(slots.size());
  if (slots.empty()) return row;
  row.v_min.assign(d_v, kInfinity);
  row.v_max.assign(d_v, -kInfinity);
  const auto q = q_of(in, t, h);
  const long double sm_scale = in.c.sm_scale;
  std::vector<long double> x;
  for (const int32_t slot : slots) {
    const auto k = k_of(in, slot);
    long double dot = 0;
    for (int32_t d = 0; d < in.c.d_qk; ++d) dot += static_cast<long double>(q[d]) * k[d];
    x.push_back(sm_scale * dot);
  }
  row.x_max = *std::max_element(x.begin(), x.end());
  long double sum = 0;
  for (const auto each : x) sum += std::exp(each - row.x_max);
  row.lse = row.x_max + std::log(sum);
  const long double sink = in.sink.empty() ? -kInfinity : in.sink[h], keep = 1 / (1 + std::exp(sink - row.lse));
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto k = k_of(in, slots[i]);
    const long double pt = std::exp(x[i] - row.lse), p = keep * pt, m = times[slots[i]];
    for (int32_t d = 0; d < in.c.d_qk; ++d) row.k_mean[d] += pt * k[d];
    row.p_max = std::max(row.p_max, p);
    row.pt_max = std::max(row.pt_max, pt);
    row.sum_pt2 += m * pt * pt;
    long double q2 = 0, k2 = 0, w = 0;
    for (int32_t d = 0; d < in.c.d_qk; ++d) q2 += q[d] * q[d], k2 += k[d] * k[d], w += q[d] * k[d] * q[d] * k[d];
    for (size_t s = 0; s < errors.size(); ++s) {
      const long double e = 0x1p-24, e_acc = errors[s].fp22 ? 0x1p-14 : 0, u_k = errors[s].u_k, u_q = errors[s].u_q;
      long double sx2 = 4 * e * e * q2 * k2 * sm_scale * sm_scale + 16 * e * e * x[i] * x[i] + 0x1p-46;
      sx2 += e_acc * e_acc * q2 * k2 * sm_scale * sm_scale * in.c.d_qk / 32;
      sx2 += u_k * u_k * (sm_scale * sm_scale * w + x[i] * x[i] / 16);
      row.lse_var[s] += m * pt * pt * sx2;
      sx2 += u_q * u_q * (sm_scale * sm_scale * w + x[i] * x[i] / 8);
      row.b[s] += m * p * p * sx2;
      for (int32_t d = 0; d < d_v; ++d) row.B[s][d] += m * p * p * sx2 * k[d] * k[d];
    }
    for (int32_t d = 0; d < d_v; ++d) {
      const long double v = k[d];
      row.out[d] += p * v, row.A[d] += m * p * p * v * v, row.C[d] += p * v * v, row.sum_v2[d] += m * v * v, row.v_mean[d] += v / row.n;
      row.v_min[d] = std::min(row.v_min[d], v), row.v_max[d] = std::max(row.v_max[d], v);
    }
  }
  for (const auto each : x) {
    const long double pt = std::exp(each - row.lse), distance = std::min(pt, row.pt_max - pt);
    if (distance <= 0x1p-24L) row.lost += distance;
  }
  return row;
}

bool near(double got, long double expected, long double scale) { return got == expected || std::fabs(got - expected) <= 1e-12L * (scale + 1e-300L); }
template <class M>
bool near_row(const M& got, int64_t row, const std::vector<long double>& expected) {
  long double scale = 0;
  for (const auto each : expected) scale = std::max(scale, std::fabs(each));
  for (size_t d = 0; d < expected.size(); ++d)
    if (!near(got(row, d), expected[d], scale)) return false;
  return true;
}

TEST_CASE("the oracle is the definition, for every sum that it returns") {
  const char* line =
      GENERATE("decode b=3 s_q=2 h_q=3 s_kv=200 topk=70 pattern=interleaved_invalid sink=mixed lens=mixed",
               "decode b=2 s_q=1 h_q=2 s_kv=300 topk=130 kv_format=fp8_656 pattern=duplicates sink=finite",
               "decode b=2 s_q=2 h_q=2 s_kv=300 topk=90 q_dtype=fp16 kv_format=fp16 pattern=all_invalid topk_length=1",
               "prefill b=1 s_q=4 h_q=2 s_kv=64 topk=100 d_qk=512 pattern=short_context",
               "decode b=1 s_q=1 h_q=5 s_kv=800 topk=600 kv_format=fp8_656 q_dtype=fp16 rope_dtype=fp16 values=late_max pattern=sorted");
  CAPTURE(line);
  const Inputs in = make_inputs(parse_line(line));
  const std::vector<ScoreError> errors = {{}, {0, 0x1p-8, false}, {0x1p-4, 0x1p-11, true}};
  const OracleBlock block = oracle(in, all_tokens(in), {.threads = 2, .score_errors = {errors[1], errors[2], errors[1]}});
  REQUIRE(block.scores.size() == 3);
  REQUIRE(block.rows() == in.tokens() * in.c.h_q);
  for (int64_t row = 0; row < block.rows(); ++row) {
    const int64_t t = row / in.c.h_q;
    CAPTURE(row);
    const Row want = by_definition(in, t, static_cast<int32_t>(row % in.c.h_q), errors);
    CHECK(near_row(block.out, row, want.out));
    CHECK(near_row(block.A, row, want.A));
    CHECK(near_row(block.C, row, want.C));
    CHECK(near_row(block.k_mean, row, want.k_mean));
    CHECK(near_row(block.sum_v2, t, want.sum_v2));
    CHECK(near_row(block.v_min, t, want.v_min));
    CHECK(near_row(block.v_max, t, want.v_max));
    CHECK(near_row(block.v_mean, t, want.v_mean));
    for (size_t s = 0; s < errors.size(); ++s) {
      CHECK(near_row(block.scores_for(errors[s]).B, row, want.B[s]));
      CHECK(near(block.scores_for(errors[s]).b[row], want.b[s], want.b[s]));
      CHECK(near(block.scores_for(errors[s]).lse_var[row], want.lse_var[s], want.lse_var[s]));
    }
    CHECK(near(block.lse[row], want.lse, 1 + std::fabs(want.x_max)));
    CHECK(near(block.x_max[row], want.x_max, 1 + std::fabs(want.x_max)));
    CHECK(block.n[row] == want.n);
    CHECK(near(block.p_max[row], want.p_max, want.p_max));
    CHECK(near(block.pt_max[row], want.pt_max, want.pt_max));
    CHECK(near(block.lost[row], want.lost, 1e-6L));
    CHECK(near(block.sum_pt2[row], want.sum_pt2, want.sum_pt2));
  }
  CHECK_THROWS_AS(block.scores_for({0x1p-4, 0x1p-4, false}), std::logic_error);
}

TEST_CASE("closed forms") {
  const char* format = GENERATE("kv_format=bf16", "kv_format=fp8_656", "kv_format=fp16 q_dtype=fp16");
  Inputs in = make_inputs(parse_line(std::string("decode b=1 s_q=1 h_q=2 s_kv=256 topk=32 ") + format));
  const int32_t slot = in.indices[5];
  const auto v = k_of(in, slot);
  const auto x = [&](int32_t h) {
    const auto q = q_of(in, 0, h);
    return in.c.sm_scale * std::inner_product(q.begin(), q.end(), v.begin(), 0.0);
  };
  const auto is_v = [&](const OracleBlock& block, int64_t row) {
    for (int32_t d = 0; d < in.c.d_v; ++d)
      if (std::fabs(block.out(row, d) - v[d]) > 1e-15 * std::fabs(v[d])) return false;
    return true;
  };
  const int64_t token[] = {0};
  SECTION("one key: out = v, lse = x") {
    std::fill(in.indices.begin(), in.indices.end(), -1);
    in.indices[31] = slot;
    const auto block = oracle(in, token);
    CHECK(is_v(block, 1));
    CHECK(block.lse[1] == Approx(x(1)).epsilon(1e-14));
    CHECK(block.n[1] == 1);
  }
  SECTION("one key named 32 times: out = v, lse = x + ln 32, errors of one key") {
    std::fill(in.indices.begin(), in.indices.end(), slot);
    const auto block = oracle(in, token);
    CHECK(is_v(block, 0));
    CHECK(block.lse[0] == Approx(x(0) + std::log(32)).epsilon(1e-14));
    CHECK(block.A(0, 7) == Approx(v[7] * v[7]));
    CHECK(block.sum_pt2[0] == Approx(1));
  }
  SECTION("a sink of +inf leaves zeros, of -inf nothing less; lse does not move") {
    const auto without = oracle(in, token);
    in.sink = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
    const auto with = oracle(in, token);
    CHECK(with.out.row(0).isZero(0));
    CHECK(with.out.row(1) == without.out.row(1));
    CHECK(with.lse == without.lse);
    CHECK(with.p_max[0] == 0);
  }
  SECTION("a sink equal to lse halves the output") {
    const auto without = oracle(in, token);
    in.sink = {static_cast<float>(without.lse[0]), -1e30f};
    const auto with = oracle(in, token);
    CHECK((with.out.row(0) - 0.5 * without.out.row(0)).norm() < 1e-6 * without.out.row(0).norm());
    CHECK(with.out.row(1) == without.out.row(1));
  }
  SECTION("the order of the entries does not matter, nor do invalid ones or those past topk_length") {
    const auto before = oracle(in, token);
    std::reverse(in.indices.begin(), in.indices.end());
    in.c.topk = 64;
    in.indices.resize(64, slot);
    in.indices[2] = std::exchange(in.indices[40], in.indices[2]);  // a key moves behind 32, where an extra one stood
    in.indices[2] = -7;
    in.indices[41] = static_cast<int32_t>(in.num_slots);
    in.topk_length = {41};
    for (int k = 32; k < 40; ++k) in.indices[k] = k % 2 ? INT32_MIN : INT32_MAX;
    const auto after = oracle(in, token);
    CHECK((after.out - before.out).norm() < 1e-13 * before.out.norm());
    CHECK((after.lse - before.lse).norm() < 1e-13);
    CHECK((after.A - before.A).norm() < 1e-13 * before.A.norm());
  }
  SECTION("no valid entry: zeros and -inf") {
    std::fill(in.indices.begin(), in.indices.end(), -1);
    const auto block = oracle(in, token);
    CHECK(block.out.isZero(0));
    CHECK(block.lse[0] == -kInfinity);
    CHECK(block.n[0] == 0);
  }
}

bool identical(const OracleBlock& a, int64_t row_a, const OracleBlock& b, int64_t row_b) {
  return a.out.row(row_a) == b.out.row(row_b) && a.A.row(row_a) == b.A.row(row_b) && a.scores[0].B.row(row_a) == b.scores[0].B.row(row_b) &&
         a.lse[row_a] == b.lse[row_b] && a.scores[0].b[row_a] == b.scores[0].b[row_b];
}

TEST_CASE("results are the same bits for any number of threads and any block") {
  const Inputs in = make_inputs(parse_line("decode b=3 s_q=1 h_q=20 s_kv=1000 topk=700 lens=mixed pattern=scattered seed=3"));
  const auto all = oracle(in, all_tokens(in));
  for (const int threads : {2, 7}) {
    const auto other = oracle(in, all_tokens(in), {.threads = threads});
    for (int64_t row = 0; row < all.rows(); ++row) REQUIRE(identical(all, row, other, row));
  }
  for (int64_t t = 0; t < 3; ++t) {
    const int64_t token[] = {t};
    const auto one = oracle(in, token, {.threads = 3});
    for (int32_t h = 0; h < in.c.h_q; ++h) REQUIRE(identical(all, t * in.c.h_q + h, one, h));
  }
}

TEST_CASE("its memory is known before it is asked") {
  const char* line = GENERATE("decode b=4 s_q=1 h_q=64 s_kv=3000 topk=1000", "decode b=1 s_q=1 h_q=2000 s_kv=90 topk=20",
                              "decode b=2 s_q=1 h_q=1 s_kv=9000 topk=9000 pattern=dense kv_format=fp8_656");
  INFO(line);
  const Inputs in = make_inputs(parse_line(line));
  OracleOptions options;
  options.score_errors = {ScoreError{.u_q = 0x1p-4}};
  const std::vector<int64_t> tokens = {0};
  const OracleBlock block = oracle(in, tokens, options);
  double elements = static_cast<double>(block.out.size() + block.A.size() + block.C.size() + block.k_mean.size());
  for (const auto& scores : block.scores) elements += static_cast<double>(scores.B.size());
  const double keys = block.n[0] * static_cast<double>(in.c.d_qk + 6 * in.c.h_q);  // K, X, W, P and L of the token at work
  CAPTURE(elements, keys);
  CHECK(oracle_bytes(in, 1, options) >= 8 * (elements + keys));
  CHECK(oracle_bytes(in, 1, options) < 2 * 8 * (elements + keys));
}

}  // namespace
}  // namespace smla
