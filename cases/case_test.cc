// SPDX-License-Identifier: Apache-2.0
#include "cases/case.h"

#include <cmath>

#include "smla_catch.h"

using namespace smla;

namespace {

std::string error_of(const std::string& line) {
  try {
    parse_line(line);
  } catch (const UsageError& error) { return error.what(); }
  return "(none)";
}

constexpr const char* kShort = "decode b=4 s_q=1 h_q=8 s_kv=32768 topk=2048 kv_format=fp8_656 pattern=page_straddling seed=7";

}  // namespace

TEST_CASE("a line parses back to itself") {
  for (const char* line : {
           kShort,
           "decode b=1 s_q=1 h_q=8 s_kv=4096 topk=2048",
           "prefill b=2 s_q=2 h_q=128 s_kv=4096 topk=2048 kv_format=fp8_656 pattern=leading_invalid seed=18446744073709551615",
           "decode b=5 s_q=3 h_q=12 s_kv=200 topk=256 d_qk=512 q_dtype=fp16 kv_format=fp16 page_size=53 page_stride_rows=60 table=query lens=mixed "
           "topk_length=1 sink=mixed sm_scale=0.07216878 num_splits=32 pattern=dense values=needle needle0=128 seed=3",
           "decode b=1 s_q=1 h_q=1 s_kv=64 topk=64 kv_format=fp8_656 scales=pow2 rope_dtype=fp16",
       })
    CHECK(to_line(parse_line(line)) == line);
}

TEST_CASE("what is default is not printed, wherever it stood") {
  const Case c =
      parse_line("  decode seed=1 topk=2048 pattern=scattered  h_q=8 page_size=16 page_stride_rows=16 q_dtype=fp16 kv_format=fp16 rope_dtype=fp16 ");
  CHECK(to_line(c) == "decode b=1 s_q=1 h_q=8 s_kv=4096 topk=2048 q_dtype=fp16 kv_format=fp16 page_size=16");
}

TEST_CASE("the full line writes every key, and its hash is the name of the case") {
  const Case c = parse_line(kShort);
  const std::string full =
      "decode b=4 s_q=1 h_q=8 s_kv=32768 topk=2048 d_qk=576 d_v=512 q_dtype=bf16 kv_format=fp8_656 scales=arbitrary rope_dtype=bf16 page_size=64 "
      "page_stride_rows=64 table=request lens=full topk_length=0 sink=none sm_scale=0.0625 num_splits=0 pattern=page_straddling values=gaussian "
      "needle0=0 seed=7";
  CHECK(to_full_line(c) == full);
  CHECK(parse_line(full) == c);
  CHECK(case_id(c) == "c4f10a32af1c53e22");
  CHECK(case_id(parse_line("decode b=4 s_q=1 h_q=8 s_kv=32768 topk=2048 kv_format=fp8_656 pattern=page_straddling seed=8")) != case_id(c));
}

TEST_CASE("keys and values are those of the full line") {
  const Case c = parse_line(kShort);
  std::string line;
  for (const std::string& key : case_keys()) line += key == "pass_kind" ? case_value(c, key) : " " + key + "=" + case_value(c, key);
  CHECK(line == to_full_line(c));
  CHECK_THROWS_AS(case_value(c, "tokens"), UsageError);
}

TEST_CASE("models expand to heads, sizes and the scale of the un-absorbed head") {
  const Case glm = parse_line("decode model=glm-5 tp=8 s_kv=32768 topk=2048");
  CHECK(to_line(glm) == "decode b=1 s_q=1 h_q=8 s_kv=32768 topk=2048");
  CHECK(glm.sm_scale == 0.0625f);
  const Case deepseek = parse_line("decode tp=4 model=deepseek-v3.2");
  CHECK(deepseek.h_q == 32);
  CHECK(deepseek.d_qk == 576);
  CHECK(deepseek.sm_scale == static_cast<float>(1 / std::sqrt(192.0)));
  CHECK(parse_line("decode model=glm-5").h_q == 64);
  CHECK(error_of("decode model=glm-5 tp=7") == "tp: 7 does not divide the 64 heads of glm-5");
  CHECK(error_of("decode model=glm-6") == "model: unknown value 'glm-6'; did you mean 'glm-5'?");
  CHECK(error_of("decode model=glm-5 h_q=8") == "h_q: model=glm-5 already gives it");
  CHECK(error_of("decode tp=8") == "tp: only together with model=");
}

TEST_CASE("errors name the key and the nearest known name") {
  CHECK(error_of("") == "empty case: it starts with 'decode' or 'prefill'");
  CHECK(error_of("decod b=1") == "pass_kind: unknown value 'decod'; did you mean 'decode'?");
  CHECK(error_of("decode topkk=3") == "unknown key 'topkk'; did you mean 'topk'?");
  CHECK_THAT(error_of("decode zzzzzzz=3"), ContainsSubstring("unknown key 'zzzzzzz'; known: model tp b s_q"));
  CHECK(error_of("decode pattern=page_stradling") == "pattern: unknown value 'page_stradling'; did you mean 'page_straddling'?");
  CHECK(error_of("decode b=two") == "b: 'two' is not a number of the kind it takes");
  CHECK(error_of("decode b=1.5") == "b: '1.5' is not a number of the kind it takes");
  CHECK(error_of("decode b=3000000000") == "b: '3000000000' is out of range");
  CHECK(error_of("decode b=") == "b: '' is not a number of the kind it takes");
  CHECK(error_of("decode seed=-1") == "seed: '-1' is not a number of the kind it takes");
  CHECK(error_of("decode topk_length=yes") == "topk_length: 'yes' is neither 0 nor 1");
  CHECK(error_of("decode b") == "'b' is not key=value");
  CHECK(error_of("decode b=1 b=2") == "b: given twice");
}

TEST_CASE("a case that contradicts itself says how") {
  CHECK(error_of("decode b=0") == "b: 0 is not positive");
  CHECK(error_of("decode h_q=-8") == "h_q: -8 is not positive");
  CHECK(error_of("decode page_stride_rows=63") == "page_stride_rows: 63 is less than page_size=64");
  CHECK(error_of("decode sm_scale=0") == "sm_scale: 0 is not a positive number");
  CHECK(error_of("decode sm_scale=nan") == "sm_scale: nan is not a positive number");
  CHECK(error_of("decode num_splits=-1") == "num_splits: -1 is negative");
  CHECK(error_of("decode q_dtype=fp16") == "kv_format=bf16: a 16-bit cache has q's type, which is q_dtype=fp16");
  CHECK(error_of("decode rope_dtype=fp16") == "rope_dtype=fp16: kv_format=bf16 has no RoPE part of its own");
  CHECK(error_of("decode scales=pow2") == "scales=pow2: kv_format=bf16 has no scales to choose");
  CHECK(error_of("decode d_qk=640") == "d_qk: 640 is neither 576 nor 512");
  CHECK(error_of("decode d_v=256") == "d_v: 256 is not 512");
  CHECK(error_of("decode kv_format=fp8_656 d_qk=512") == "d_qk=512: fp8_656 rows have 576 values");
  CHECK(error_of("decode pattern=dense s_kv=300 topk=299") == "pattern=dense: topk=299 is less than s_kv=300");
  CHECK(error_of("decode pattern=short_context s_kv=300 topk=300") == "pattern=short_context: s_kv=300 is not less than topk=300");
  CHECK(error_of("decode pattern=stale_tail") == "pattern=stale_tail: needs topk_length=1");
  CHECK(error_of("decode pattern=shared_prefix") == "pattern=shared_prefix: b=1 has nobody to share with");
  CHECK(error_of("decode pattern=leading_invalid topk=64") == "pattern=leading_invalid: topk=64 leaves nothing behind a leading tile of 64");
  CHECK(error_of("decode values=late_max") == "values=late_max: rises along the list only with pattern=contiguous, dense or sorted, not scattered");
  CHECK(error_of("decode values=late_max pattern=sorted d_qk=512") == "values=late_max: speaks through channel 512, which d_qk=512 lacks");
  CHECK(error_of("decode values=needle kv_format=fp8_656") == "values=needle: kv_format=fp8_656 needs scales=pow2");
  CHECK(error_of("decode values=exact_mean sink=finite") == "values=exact_mean: sink=finite, but the mean is over keys only");
  CHECK(error_of("decode needle0=5") == "needle0=5: only with values=needle");
  CHECK(error_of("decode b=2000000 s_kv=4096") == "b=2000000 s_kv=4096 page_size=64: more slots than an int32 index can name");
}
