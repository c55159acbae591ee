// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include <limits>
#include <set>

#include "cases/words.h"
#include "kernels/contract.h"
#include "kernels/problem.h"
#include "smla_catch.h"

namespace smla {
namespace {

TEST_CASE("every kernel of the table is complete and has a name of its own") {
  std::set<std::string> seen;
  for (const KernelEntry& entry : kernels()) {
    const smla_kernel& kernel = *entry.kernel;
    INFO(kernel.name);
    CHECK(seen.insert(kernel.name).second);
    CHECK(std::string(kernel.name).find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.+-") == std::string::npos);
    CHECK(kernel.struct_size == sizeof(smla_kernel));
    CHECK(std::string(kernel.description).size() > 5);
    CHECK(std::string(kernel.name).starts_with("mut_") == (entry.group == KernelGroup::mutant));
    CHECK(std::string(kernel.name).starts_with("fake_") == (entry.group == KernelGroup::fake));
    CHECK((kernel.supports && kernel.workspace_bytes && kernel.launch));
  }
}

TEST_CASE("kernels are found by name, and by group in the table's order") {
  CHECK(std::string(find_kernel("cpu_split").name) == "cpu_split");
  CHECK_THROWS_WITH(find_kernel("cpu_splt"), ContainsSubstring("cpu_splt") && ContainsSubstring("did you mean") && ContainsSubstring("cpu_split"));
  CHECK_THROWS_AS(find_kernel(""), UsageError);
  std::vector<std::string> first;
  for (const smla_kernel* kernel : kernels(KernelGroup::built_in)) first.push_back(kernel->name);
  first.resize(4);
  CHECK(first == std::vector<std::string>{"cpu_naive", "cpu_split", "cpu_dense", "cpu_virtual_block_table"});
  CHECK(kernels(KernelGroup::mutant).size() > 150);
}

TEST_CASE("contracts cross the door and come back") {
  Contract k;
  k.invalid_index = InvalidIndex::negative, k.padding = Padding::tail_only, k.lse_dtype = LseType::bf16, k.lse_base = LseBase::two;
  k.empty_lse = EmptyLse::large_negative, k.sink_in_lse = true, k.duplicates = Duplicates::undefined;
  k.q = Rounding::e4m3, k.k = Rounding::bf16, k.v = Rounding::fp16, k.p = Rounding::fp32, k.p_scale = 256, k.acc = Acc::fp22;
  k.row_sum = RowSum::rounded, k.p_max = PMax::any, k.part = Rounding::bf16, k.deterministic = k.batch_invariant = k.scale_exact = true;
  CHECK(from_c(to_c(k), "k") == k);
  CHECK(from_c(to_c(Contract()), "k") == Contract());

  smla_contract all_zero = {};
  all_zero.struct_size = sizeof all_zero;
  CHECK(from_c(all_zero, "k") == reference_contract());

  smla_contract older = to_c(k);
  older.struct_size = offsetof(smla_contract, deterministic);  // what lies beyond its size is not read
  Contract expected = k;
  expected.deterministic = expected.batch_invariant = expected.scale_exact = false;
  CHECK(from_c(older, "k") == expected);

  smla_contract wrong = to_c(k);
  wrong.p_round = 6;
  CHECK_THROWS_WITH(from_c(wrong, "mine"), "kernel 'mine': contract.p_round = 6 is not defined (0 to 5)");
  wrong = to_c(k);
  for (const float scale : {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    wrong.p_scale = scale;
    CHECK_THROWS_AS(from_c(wrong, "mine"), UsageError);
  }
}

TEST_CASE("the problem of a case") {
  const Inputs in =
      make_inputs(parse_line("decode b=3 s_q=2 h_q=5 s_kv=300 topk=128 page_size=32 page_stride_rows=40 kv_format=fp8_656 topk_length=1"));
  const smla_problem p = make_problem(in, 7);
  CHECK((p.b == 3 && p.s_q == 2 && p.h_q == 5 && p.topk == 128 && p.d_qk == 576 && p.d_v == 512 && p.page_size == 32 && p.threads == 7));
  CHECK((p.num_slots == int64_t{p.num_pages} * 32 && p.page_stride_bytes == 40 * 656));
  CHECK((p.q_stride_bytes[0] == 2 * 5 * 576 * 2 && p.q_stride_bytes[1] == 5 * 576 * 2 && p.q_stride_bytes[2] == 576 * 2));
  CHECK((p.out_stride_bytes[0] == 2 * 5 * 512 * 2 && p.lse_stride_bytes[0] == 2 * 5 * 4 && p.lse_stride_bytes[1] == 5 * 4));
  CHECK(make_problem(in, 1, 2).lse_stride_bytes[1] == 5 * 2);
  const TensorBytes size = tensor_bytes(p);
  CHECK((size.q == 3 * 2 * 5 * 576 * 2 && size.kv == int64_t{p.num_pages} * 40 * 656 && size.topk_length == 24 &&
         size.block_table == 3 * 4 * p.max_pages));

  Variant padded;
  padded.pad_strides = true;
  const smla_problem wide = make_problem(make_inputs(in.c, padded), 7);
  for (int i = 0; i < 3; ++i) CHECK((wide.q_stride_bytes[i] > p.q_stride_bytes[i] && wide.out_stride_bytes[i] > p.out_stride_bytes[i]));
  for (int i = 0; i < 2; ++i) CHECK((wide.indices_stride_bytes[i] > p.indices_stride_bytes[i] && wide.lse_stride_bytes[i] > p.lse_stride_bytes[i]));
  CHECK(wide.q_stride_bytes[1] != wide.h_q * wide.q_stride_bytes[2]);  // a gap behind every dimension
  CHECK(wide.q_stride_bytes[0] != wide.s_q * wide.q_stride_bytes[1]);
}

}  // namespace
}  // namespace smla
