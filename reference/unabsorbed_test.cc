// SPDX-License-Identifier: Apache-2.0
#include "reference/unabsorbed.h"

#include <numeric>
#include <string>

#include "smla_catch.h"

namespace smla {
namespace {

TEST_CASE("the un-absorbed form gives the oracle's answer, for the heads of both models") {
  struct Sizes {
    int32_t qk_nope, v_head;
  };
  const auto sizes = GENERATE(Sizes{128, 128}, Sizes{192, 256});  // DeepSeek-V3.2, GLM-5
  const char* line =
      GENERATE("decode b=2 s_q=1 h_q=2 s_kv=300 topk=100 sink=finite lens=mixed", "decode b=1 s_q=1 h_q=2 s_kv=300 topk=200 kv_format=fp8_656",
               "decode b=1 s_q=1 h_q=2 s_kv=100 topk=80 d_qk=512 q_dtype=fp16 kv_format=fp16 pattern=duplicates",
               "decode b=1 s_q=1 h_q=3 s_kv=100 topk=80 values=large_logits", "decode b=1 s_q=1 h_q=2 s_kv=100 topk=80 values=tiny",
               "decode b=1 s_q=1 h_q=2 s_kv=300 topk=64 values=needle sink=mixed");
  const Inputs in = make_inputs(parse_line(line));
  std::vector<int64_t> tokens(in.tokens());
  std::iota(tokens.begin(), tokens.end(), 0);
  OracleBlock block = oracle(in, tokens);
  for (int64_t row = 0; row < block.rows(); ++row) {
    const auto error = unabsorbed_error(in, block, row, sizes.qk_nope, sizes.v_head);
    CAPTURE(line, sizes.qk_nope, sizes.v_head, row, error.out, error.lse);
    CHECK(error.ok());
  }
}

TEST_CASE("a row that is not the operator's answer is noticed") {
  const Inputs in = make_inputs(parse_line("decode b=1 s_q=1 h_q=2 s_kv=300 topk=100"));
  const int64_t token[] = {0};
  OracleBlock block = oracle(in, token);
  block.out(0, 100) += 1e-6;
  block.lse[1] += 1e-6;
  CHECK_FALSE(unabsorbed_error(in, block, 0, 128, 128).ok());
  CHECK_FALSE(unabsorbed_error(in, block, 1, 192, 256).ok());
}

TEST_CASE("a model head absorbs to the query that was asked for") {
  const Eigen::VectorXd q = Eigen::VectorXd::LinSpaced(576, -1, 2);
  const ModelHead head = model_head(q, 512, 192, 256, 5);
  CHECK((head.W_UK.transpose() * head.q_nope - q.head(512)).norm() < 1e-13 * q.norm());
  CHECK(head.q_rope == q.tail(64));
  CHECK(head.W_UK.rows() == 192);
  CHECK(head.W_UV.rows() == 256);
  CHECK(head.W_UK.fullPivLu().rank() > 100);  // a real projection, not the correction alone
}

}  // namespace
}  // namespace smla
