// SPDX-License-Identifier: Apache-2.0
#include "reference/exact.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "reference/test_kernel.h"
#include "smla_catch.h"

namespace smla {
namespace {

const float kInf = std::numeric_limits<float>::infinity();

std::vector<int64_t> all_tokens(const Inputs& in) {
  std::vector<int64_t> tokens(in.tokens());
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

struct Judged {
  int rows = 0, red = 0;
  double z_max = 0, lse_ratio = 0;
  std::string diagnosis;  // the last one
};
Judged judge(const Inputs& in, const test::Kernel& kernel, const Contract& contract = {}) {
  const OracleBlock block = oracle(in, all_tokens(in));
  Judged judged;
  for (int64_t t = 0; t < in.tokens(); ++t) {
    const test::Output output = test::run(in, t, kernel);
    for (int32_t h = 0; h < in.c.h_q; ++h) {
      const auto stats = judge_exact_row(needs_no_oracle(in.c.values) ? nullptr : &block, t * in.c.h_q + h, in, t, h, contract, kernel.splits > 1,
                                         {output.out.row(h).data(), size_t(in.c.d_v)}, output.lse[h], {}, &judged.diagnosis);
      ++judged.rows;
      judged.red += !stats.ok();
      judged.z_max = std::max(judged.z_max, stats.z_max);
      judged.lse_ratio = std::max(judged.lse_ratio, stats.lse_ratio);
    }
  }
  return judged;
}

Inputs inputs(const std::string& line) { return make_inputs(parse_line(line)); }

TEST_CASE("a healthy kernel gives the exact answers") {
  const char* line = GENERATE("decode b=2 s_q=2 h_q=8 s_kv=600 topk=300 values=needle sink=mixed",
                              "decode b=2 s_q=1 h_q=8 s_kv=100 topk=300 values=needle pattern=duplicates",
                              "decode b=2 s_q=1 h_q=8 s_kv=600 topk=65 values=needle kv_format=fp8_656 scales=pow2 sink=finite",
                              "decode b=2 s_q=1 h_q=8 s_kv=600 topk=1 values=tracer q_dtype=fp16 kv_format=fp16",
                              "decode b=3 s_q=1 h_q=4 s_kv=600 topk=100 values=needle pattern=all_invalid",
                              "decode b=2 s_q=1 h_q=2 s_kv=3000 topk=2047 values=exact_mean",
                              "decode b=2 s_q=1 h_q=2 s_kv=600 topk=128 values=exact_mean q_dtype=fp16 kv_format=fp16",
                              "decode b=2 s_q=1 h_q=2 s_kv=2000 topk=513 values=exact_mean kv_format=fp8_656 scales=pow2");
  for (const int splits : {1, 4}) {
    const auto judged = judge(inputs(line), {.splits = splits});
    CAPTURE(line, splits, judged.diagnosis, judged.z_max, judged.lse_ratio);
    CHECK(judged.red == 0);
  }
}

TEST_CASE("the needle's rule and the oracle are one answer") {
  const char* line = GENERATE("decode b=2 s_q=2 h_q=4 s_kv=600 topk=300 values=needle sink=mixed",
                              "decode b=2 s_q=1 h_q=8 s_kv=100 topk=300 values=tracer pattern=duplicates",
                              "decode b=3 s_q=1 h_q=4 s_kv=600 topk=65 values=needle kv_format=fp8_656 scales=pow2 pattern=interleaved_invalid");
  const Inputs in = inputs(line);
  const OracleBlock block = oracle(in, all_tokens(in));
  for (int64_t row = 0; row < block.rows(); ++row) {
    std::vector<float> out(block.out.row(row).begin(), block.out.row(row).end());
    const int64_t t = row / in.c.h_q;
    const auto stats = judge_exact_row(nullptr, 0, in, t, static_cast<int32_t>(row % in.c.h_q), {}, false, out, block.lse[row]);
    CAPTURE(line, row, stats.n_bad, stats.lse_ratio);
    CHECK(stats.ok());
    CHECK(stats.lse_ratio < 1e-3);
  }
}

TEST_CASE("faults in one key die in every needle row that has it, and in every row of exact_mean") {
  using test::Fault;
  // 16 heads over 9 keys: every key is some head's needle. The faulty key is the middle one.
  const Inputs needle = inputs("decode b=1 s_q=1 h_q=18 s_kv=600 topk=9 values=needle");
  for (const Fault fault : {Fault::key_dropped, Fault::key_of_a_neighbour, Fault::v_of_one_key, Fault::key_doubled}) {
    CAPTURE(int(fault));
    CHECK(judge(needle, {.fault = fault}).red == 2);
  }
  for (const char* format : {"", " q_dtype=fp16 kv_format=fp16", " kv_format=fp8_656 scales=pow2"})
    for (const int topk : {65, 513, 1000, 2048}) {
      const Inputs mean = inputs("decode b=1 s_q=1 h_q=2 s_kv=2100 values=exact_mean topk=" + std::to_string(topk) + format);
      for (const Fault fault :
           {Fault::key_dropped, Fault::key_doubled, Fault::key_of_a_neighbour, Fault::v_of_one_key, Fault::out_truncated, Fault::zeros}) {
        CAPTURE(format, topk, int(fault));
        if (topk != 2048 || fault != Fault::out_truncated) CHECK(judge(mean, {.fault = fault}).red == 2);
      }
    }
}

TEST_CASE("impostors: zeros and mean(V) are rejected in every row that is not empty") {
  using test::Fault;
  for (const char* values : {"needle", "tracer"}) {
    const Inputs in = inputs("decode b=1 s_q=1 h_q=6 s_kv=600 topk=100 values=" + std::string(values));
    for (const Fault fault : {Fault::zeros, Fault::mean_v}) CHECK(judge(in, {.fault = fault}).red == 6);
    if (in.c.values == Values::needle) CHECK(judge(in, {.fault = Fault::heads_swapped}).red == 6);  // neighbours in head have different needles
  }
}

TEST_CASE("p_max=any may miss v by its roundings, p_max=one not by a bit") {
  const Inputs in = inputs("decode b=1 s_q=1 h_q=1 s_kv=600 topk=100 values=needle");
  const OracleBlock block = oracle(in, all_tokens(in));
  const auto judged = [&](double factor, const Contract& contract) {
    std::vector<float> out(block.out.row(0).begin(), block.out.row(0).end());
    for (float& x : out) x = static_cast<float>(x * factor);
    return judge_exact_row(nullptr, 0, in, 0, 0, contract, true, out, block.lse[0]);
  };
  const double ulp = 0x1p-7;  // of 1 in bf16; u_p + u_out is one
  CHECK(judged(1, {}).ok());
  CHECK_FALSE(judged(1 + ulp, {}).ok());
  CHECK(judged(1 + 0.99 * ulp, {.p_max = PMax::any}).ok());
  CHECK_FALSE(judged(1 + 1.01 * ulp, {.p_max = PMax::any}).ok());
  CHECK(judged(1 + 1.4 * ulp, {.p_max = PMax::any, .part = Rounding::bf16}).ok());
  CHECK_FALSE(judged(NAN, {.p_max = PMax::any}).ok());
}

TEST_CASE("lse of the exact families") {
  const Inputs in = inputs("decode b=1 s_q=1 h_q=2 s_kv=600 topk=64 values=exact_mean");
  const OracleBlock block = oracle(in, all_tokens(in));
  std::vector<float> out(in.c.d_v);
  for (int32_t d = 0; d < in.c.d_v; ++d) out[d] = test::round16(static_cast<float>(block.v_mean(0, d)), FloatType::bf16);
  const auto ratio = [&](double lse, const Contract& contract) { return judge_exact_row(&block, 0, in, 0, 0, contract, true, out, lse).lse_ratio; };
  CHECK(ratio(std::log(64), {}) == 0);
  CHECK(ratio(6, {.lse_base = LseBase::two}) < 1e-3);
  CHECK(ratio(std::log(65), {}) > 100);
  CHECK(ratio(std::log(64) + 3e-6, {}) > 1);
  CHECK_THROWS_AS(judge_exact_row(nullptr, 0, in, 0, 0, {}, true, out, 0), std::logic_error);
}

TEST_CASE("the lse of a needle row may be off by what the declared rounding of Q moves its score, and by no more") {
  const Inputs in = make_inputs(parse_line("decode b=2 s_q=1 h_q=8 s_kv=300 topk=30 values=needle kv_format=bf16"));
  const Contract rounds_q = {.q = Rounding::e4m3};
  std::vector<uint16_t> q_bits(in.c.d_qk);
  std::vector<uint8_t> row(in.row_bytes);
  std::vector<double> q(in.c.d_qk), k(in.c.d_qk);
  for (int64_t t = 0; t < in.tokens(); ++t)
    for (int32_t h = 0; h < in.c.h_q; ++h) {
      const int64_t slot = needle_slot(in, t, h);
      q_row(in, t, h, q_bits.data());
      kv_row(in, slot, row.data());
      decode16(q_bits.data(), in.c.q_dtype, in.c.d_qk, q.data());
      decode_row(in.c, row.data(), k.data());
      double x = 0, w = 0;
      for (int32_t c = 0; c < in.c.d_qk; ++c) x += in.c.sm_scale * q[c] * k[c], w += std::pow(in.c.sm_scale * q[c] * k[c], 2);
      const double deviation = 0x1p-4 * std::sqrt((w + x * x / 8) / 3);
      const std::vector<float> out(k.begin(), k.begin() + in.c.d_v);
      const auto ratio = [&](const Contract& contract, double deviations) {
        return judge_exact_row(nullptr, 0, in, t, h, contract, false, out, x + deviations * deviation, {}).lse_ratio;
      };
      CHECK(ratio(rounds_q, 5.5) < 1);
      CHECK(ratio(rounds_q, 6.5) > 1);
      CHECK(ratio({}, 0.5) > 1);
    }
}

TEST_CASE("the tracer names the slot that came out, and what it is to the row") {
  Inputs in = inputs("decode b=2 s_q=1 h_q=4 s_kv=400 topk=50 values=tracer topk_length=1 pattern=stale_tail seed=4");
  const int32_t k_t = in.k_t(0);
  REQUIRE(k_t > 1);
  REQUIRE(k_t < in.c.topk);
  const int64_t needle = needle_slot(in, 0, 0);
  const auto diagnosis = [&](int64_t slot) {
    std::vector<uint8_t> bytes(in.row_bytes);
    std::vector<double> k(in.c.d_qk);
    kv_row(in, slot, bytes.data());
    decode_row(in.c, bytes.data(), k.data());
    const std::vector<float> out(k.begin(), k.begin() + in.c.d_v);
    std::string text;
    judge_exact_row(nullptr, 0, in, 0, 0, {}, false, out, 0, {}, &text);
    return text;
  };
  CHECK(diagnosis(needle).empty());
  const int32_t other = in.indices[0] == needle ? in.indices[1] : in.indices[0];
  CHECK_THAT(diagnosis(other), ContainsSubstring("got slot " + std::to_string(other)) &&
                                   ContainsSubstring("should be slot " + std::to_string(needle)) && ContainsSubstring("of the row"));
  CHECK_THAT(diagnosis(in.indices[in.c.topk - 1]), ContainsSubstring("past its topk_length") || ContainsSubstring("of the row)"));
  int64_t foreign = 0;  // a slot of the other request, away from the row's
  while (in.page_use(foreign / in.c.page_size) == nullptr || in.page_use(foreign / in.c.page_size)->owner != 1 ||
         describe_slot(in, 0, foreign).find("entry") != std::string::npos)
    ++foreign;
  CHECK_THAT(diagnosis(foreign), ContainsSubstring("position") && ContainsSubstring("of request 1"));
  std::vector<float> out(in.c.d_v);
  std::string text;
  CHECK_FALSE(judge_exact_row(nullptr, 0, in, 0, 0, {}, false, out, 0, {}, &text).ok());
  CHECK_THAT(text, ContainsSubstring("got zeros"));
  out.assign(in.c.d_v, NAN);
  judge_exact_row(nullptr, 0, in, 0, 0, {}, false, out, 0, {}, &text);
  CHECK_THAT(text, ContainsSubstring("non-finite"));
  out.assign(in.c.d_v, 1);
  judge_exact_row(nullptr, 0, in, 0, 0, {}, false, out, 0, {}, &text);
  CHECK_THAT(text, ContainsSubstring("no slot"));
  CHECK(describe_slot(in, 0, -1) == "before the pool");
  CHECK(describe_slot(in, 0, in.num_slots) == "behind the pool");
}

}  // namespace
}  // namespace smla
