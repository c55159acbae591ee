// SPDX-License-Identifier: Apache-2.0
#include "cases/cost.h"

#include "smla_catch.h"

using namespace smla;

TEST_CASE("one GLM-5 TP8 token: literals from the operator's definition") {
  const Inputs in = make_inputs(parse_line("decode b=1 model=glm-5 tp=8 s_kv=32768 topk=2048 kv_format=fp8_656"));
  CHECK(in.valid_keys == 2048);
  const Cost one = cost(in);
  CHECK(one.flops == 8 * 4456448);                                     // 2 * 2048 * (576 + 512) a head
  const int64_t small = 8 * 576 * 2 + 8 * 512 * 2 + 8 * 4 + 2048 * 4;  // q, out, lse, indices
  CHECK(one.bytes_unique == 1343488 + small);                          // 2048 * 656
  CHECK(one.bytes_gathered == 1343488 + small);
  CHECK(tensor_bytes(in) == (512 + 64) * 64 * 656 + small + (512 + 3) * 4 + 4);  // pool, block_table, seq_lens
}

TEST_CASE("duplicates are gathered twice and counted once; topk_length, sink and the page gap are counted") {
  const Inputs in =
      make_inputs(parse_line("decode b=2 s_q=1 h_q=3 s_kv=100 topk=80 pattern=duplicates topk_length=1 sink=finite page_stride_rows=70"));
  const int64_t small = 2 * (3 * 576 * 2 + 3 * 512 * 2 + 3 * 4 + 80 * 4 + 4);
  CHECK(in.valid_keys == in.topk_length[0] + in.topk_length[1]);
  CHECK(cost(in).bytes_gathered == in.valid_keys * 1152 + small);
  CHECK(cost(in).bytes_unique == static_cast<int64_t>(in.selected.size()) * 1152 + small);
  CHECK(static_cast<int64_t>(in.selected.size()) < in.valid_keys);
  CHECK(tensor_bytes(in) == 6 * 70 * 1152 + small + (2 * 5 + 2 + 3) * 4);
}

TEST_CASE("the dense kernel over the same requests attends every position up to its row's own") {
  const Cost one = dense_cost(make_inputs(parse_line("decode b=1 s_q=1 h_q=8 s_kv=32768 topk=2048 kv_format=fp8_656")));
  const int64_t rest = 8 * 576 * 2 + 8 * 512 * 2 + 8 * 4 + 4 + 4 * (512 + 3);  // q, out, lse, seq_lens, block_table with 3 columns to spare
  CHECK(one.flops == int64_t{2} * 8 * 32768 * 1088);
  CHECK(one.bytes_unique == int64_t{32768} * 656 + rest);
  CHECK(one.bytes_gathered == one.bytes_unique);
  const Cost chunk = dense_cost(make_inputs(parse_line("prefill b=1 s_q=3 h_q=2 s_kv=10 topk=4")));
  CHECK(chunk.flops == int64_t{2} * 2 * (8 + 9 + 10) * 1088);
  CHECK(chunk.bytes_unique < chunk.bytes_gathered);
}

TEST_CASE("a far pool is counted by what is backed") {
  const Inputs in = make_inputs(parse_line("decode b=1 s_q=1 h_q=1 s_kv=64 topk=64 pattern=far"));
  CHECK(in.num_pages * in.page_stride_bytes > int64_t{8} << 30);
  CHECK(tensor_bytes(in) < int64_t{5} << 20);
}

TEST_CASE("what the lists take is known before they are made") {
  const char* line = GENERATE("decode b=3 s_q=2 h_q=8 s_kv=4096 topk=2048", "decode b=2 s_q=1 h_q=8 s_kv=30000 topk=64 page_size=1",
                              "prefill b=1 s_q=300 h_q=128 s_kv=2000 topk=128 values=needle table=query page_size=16 topk_length=1 sink=finite");
  INFO(line);
  const Inputs in = make_inputs(parse_line(line));
  const auto bytes = [](const auto& list) { return static_cast<double>(list.size() * sizeof list[0]); };
  const double kept = bytes(in.indices) + bytes(in.block_table) + bytes(in.page_uses) + bytes(in.selected) + bytes(in.needle_keys) +
                      bytes(in.topk_length) + bytes(in.sink) + bytes(in.seq_lens);
  CAPTURE(kept, inputs_bytes(in.c));
  CHECK(inputs_bytes(in.c) >= kept);
  CHECK(inputs_bytes(in.c) < 3 * kept);
}
