// SPDX-License-Identifier: Apache-2.0
#include "cases/contract.h"

#include "smla_catch.h"

using namespace smla;

TEST_CASE("a declaration is written as what differs from exact, fp32 and base e") {
  CHECK(declared(reference_contract(), FloatType::bf16) == "p=bf16");
  CHECK(declared(reference_contract(), FloatType::fp16) == "p=fp16");
  Contract exact;
  exact.p = Rounding::exact;
  exact.part = Rounding::exact;
  CHECK(declared(exact, FloatType::bf16).empty());
  Contract c;
  c.k = c.v = Rounding::bf16;
  c.p = Rounding::e4m3;
  c.p_scale = 448;
  c.acc = Acc::fp22;
  c.row_sum = RowSum::rounded;
  c.p_max = PMax::any;
  c.part = Rounding::q;
  c.lse_dtype = LseType::bf16;
  c.lse_base = LseBase::two;
  c.empty_lse = EmptyLse::pos_inf;
  c.sink_in_lse = true;
  c.invalid_index = InvalidIndex::minus_one;
  c.padding = Padding::tail_only;
  c.duplicates = Duplicates::undefined;
  CHECK(declared(c, FloatType::fp16) ==
        "k=bf16|v=bf16|p=e4m3|p_scale=448|acc=fp22|row_sum=rounded|p_max=any|part=fp16|lse_dtype=bf16|lse_base=2|empty_lse=inf|sink_in_lse=true|"
        "invalid_index=minus_one|padding=tail_only|duplicates=undefined");
}

TEST_CASE("unit roundoffs") {
  CHECK(unit_roundoff(Rounding::exact, FloatType::bf16) == 0);
  CHECK(unit_roundoff(Rounding::fp32, FloatType::bf16) == 0x1p-24);
  CHECK(unit_roundoff(Rounding::fp16, FloatType::bf16) == 0x1p-11);
  CHECK(unit_roundoff(Rounding::bf16, FloatType::fp16) == 0x1p-8);
  CHECK(unit_roundoff(Rounding::e4m3, FloatType::bf16) == 0x1p-4);
  CHECK(unit_roundoff(Rounding::q, FloatType::bf16) == 0x1p-8);
  CHECK(unit_roundoff(Rounding::q, FloatType::fp16) == 0x1p-11);
}

TEST_CASE("a contract is read from its words, and written in them") {
  CHECK(parse_contract("") == Contract{});
  CHECK(contract_words(Contract{}).empty());
  const std::string words =
      "invalid_index=minus_one padding=tail_only lse_dtype=bf16 lse_base=two empty_lse=pos_inf sink_in_lse=yes duplicates=undefined k=bf16 v=bf16 "
      "p=e4m3 acc=fp22 row_sum=rounded p_max=any part=q deterministic=yes scale_exact=yes p_scale=448";
  const Contract c = parse_contract(words);
  CHECK(c.lse_base == LseBase::two);
  CHECK(c.k == Rounding::bf16);
  CHECK(c.scale_exact);
  CHECK(contract_words(c) == words);
  CHECK(parse_contract("lse_base=two|p=fp32,sink_in_lse=no").p == Rounding::fp32);
  CHECK(parse_contract("p=exact", c).lse_base == LseBase::two);
}

TEST_CASE("a word that a contract does not know names the nearest") {
  const auto says = [](const std::string& words, const std::string& text) {
    INFO(words);
    try {
      parse_contract(words);
      FAIL("was read");
    } catch (const UsageError& e) { CHECK(std::string(e.what()).find(text) != std::string::npos); }
  };
  says("lse_bas=two", "lse_base");
  says("lse_base=tow", "two");
  says("lse_base", "key=value");
  says("p_scale=-1", "positive");
  says("p_scale=inf", "positive");
}
