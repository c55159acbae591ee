// SPDX-License-Identifier: Apache-2.0
// Each cause against a kernel in which just that is planted; kernels that nothing in the table explains; and healthy ones.
#include "harness/cause.h"

#include <map>
#include <memory>
#include <numeric>

#include "kernels/contract.h"
#include "kernels/host_call.h"
#include "kernels/registry.h"
#include "reference/exact.h"
#include "smla_catch.h"

using namespace smla;

namespace {

constexpr Variant kRefilled{.poison = Poison::numbers};

/// A case and its oracle's answer, for all kernels.
struct Asked {
  explicit Asked(const std::string& line)
      : call(parse_line(line)), refilled(parse_line(line), kRefilled), tokens(static_cast<size_t>(call.inputs().tokens())) {
    std::iota(tokens.begin(), tokens.end(), 0);
    if (!needs_no_oracle(call.inputs().c.values)) block = std::make_unique<OracleBlock>(oracle(call.inputs(), tokens));
  }
  HostCall call, refilled;
  std::vector<int64_t> tokens;
  std::unique_ptr<OracleBlock> block;
};

Causes causes_of(const std::string& kernel, const std::string& line) {
  static std::map<std::string, Asked> asked;
  Asked& a = asked.try_emplace(line, line).first->second;
  const HostResult result = a.call.run(find_kernel(kernel)), again = a.refilled.run(find_kernel(kernel));
  const Refilled refilled{a.refilled.inputs(), {again.out, again.lse}};
  return find_causes(a.call.inputs(), {}, true, a.block.get(), a.tokens, {result.out, result.lse}, &refilled);
}

const std::string kPlain = "decode b=4 s_q=2 h_q=4 s_kv=300 topk=150", kFp8 = kPlain + " kv_format=fp8_656",
                  kSink = kPlain + " sink=finite sm_scale=0.5", kHoles = "decode b=7 s_q=1 h_q=4 s_kv=400 topk=220 pattern=interleaved_invalid",
                  kHeads = "decode b=1 s_q=1 h_q=96 s_kv=200 topk=100", kTwice = "decode b=4 s_q=1 h_q=4 s_kv=300 topk=200 pattern=duplicates",
                  kNeedle = kPlain + " values=needle", kEmpty = "decode b=5 s_q=1 h_q=4 s_kv=300 topk=150 pattern=all_invalid",
                  kBehind = "decode b=9 s_q=1 h_q=4 s_kv=700 topk=192 topk_length=1 pattern=stale_tail",
                  kBehindLater = "decode b=4 s_q=2 h_q=4 s_kv=700 topk=192 topk_length=1 pattern=stale_tail",
                  kBeyond = kPlain + " pattern=out_of_range", kDense = "decode b=3 s_q=2 h_q=4 s_kv=290 topk=300 pattern=short_context",
                  kHalf = kPlain + " q_dtype=fp16 kv_format=fp16", kMany = "decode b=5 s_q=2 h_q=8 s_kv=1200 topk=300 pattern=reversed",
                  kLong = "decode b=3 s_q=1 h_q=16 s_kv=500 topk=190 d_qk=512", kWide = "decode b=2 s_q=2 h_q=4 s_kv=300 topk=150 d_qk=512";

/// What is told of a kernel that reads what no row selects.
const std::string kThere = "where unselected memory holds numbers, as if ",
                  kHarmless = "right where unselected memory holds numbers: it is read, and must not be";

}  // namespace

TEST_CASE("a planted cause is named") {
  const struct {
    const char* kernel;
    std::string line, out, lse;
  } planted[] = {
      {"mut_sm_scale_twice", kPlain, "as if sm_scale were applied twice", "as if sm_scale were applied twice"},
      {"mut_sm_scale_ignored", kPlain, "as if sm_scale were not applied", "as if sm_scale were not applied"},
      {"mut_sm_scale_doubled", kPlain, "as if sm_scale were doubled", "as if sm_scale were doubled"},
      {"mut_sm_scale_absorbed", kPlain, "as if sm_scale were d_qk^-0.5", "as if sm_scale were d_qk^-0.5"},
      {"mut_sm_scale_192", kPlain, "as if sm_scale were 192^-0.5", "as if sm_scale were 192^-0.5"},
      {"mut_exp_in_base_2", kPlain, "as if exp(x) were 2^x", ""},
      {"mut_sink_ignored", kSink, "as if the sink were ignored", ""},
      {"mut_sink_twice", kSink, "as if the sink counted twice", ""},
      {"mut_sink_scaled", kSink, "as if the sink were multiplied by sm_scale", ""},
      {"mut_sink_in_base_2", kSink, "as if the sink were in base 2", ""},
      {"mut_sink_of_first_head", kSink, "as if the sink were head 0's", ""},
      {"mut_sink_by_row", kSink, "as if the sink were indexed by query token", ""},
      {"mut_last_key_dropped", kPlain, "as if the last valid entry were left out", "as if the last valid entry were left out"},
      {"mut_last_key_dropped", kBehind + " values=needle", "as if the last valid entry were left out", "as if the last valid entry were left out"},
      {"mut_first_key_dropped", kPlain, "as if the first valid entry were left out", "as if the first valid entry were left out"},
      {"mut_slot0_invalid", kDense, "as if slot 0 were invalid", "as if slot 0 were invalid"},
      {"mut_last_slot_invalid", kDense, "as if the pool's last slot were invalid", "as if the pool's last slot were invalid"},
      {"mut_topk_length_ignored", kBehind, kThere + "topk_length were ignored", kThere + "topk_length were ignored"},
      {"mut_topk_length_to_tile", kBehind, kThere + "topk_length were rounded up to a whole tile of 64",
       kThere + "topk_length were rounded up to a whole tile of 64"},
      {"mut_topk_length_one_too_long", kBehind, kThere + "one entry behind topk_length counted", kThere + "one entry behind topk_length counted"},
      {"mut_topk_length_of_first_row", kBehind, kThere + "topk_length were the first query token's",
       kThere + "topk_length were the first query token's"},
      {"mut_topk_length_by_request", kBehindLater, kThere + "topk_length were indexed by request", kThere + "topk_length were indexed by request"},
      {"mut_tail_values_loaded", kBehind, kHarmless, ""},
      {"mut_out_of_range_clamped", kBeyond, kThere + "entries beyond the pool were its last slot",
       kThere + "entries beyond the pool were its last slot"},
      {"mut_minus_one_trusted", kHoles, kThere + "-1 were the row before the pool", kThere + "-1 were the row before the pool"},
      {"mut_minus_one_before_pool", kHoles, kHarmless, ""},
      {"mut_position_for_index", kPlain, kThere + "an entry's position were its slot", kThere + "an entry's position were its slot"},
      {"mut_first_key_is_slot0", kPlain, "as if the first entry named slot 0", "as if the first entry named slot 0"},
      {"mut_runs_of_four", kPlain, kThere + "every four entries named slots in a row, from the first one's on",
       kThere + "every four entries named slots in a row, from the first one's on"},
      {"mut_slot_in_16_bits", "decode b=1 s_q=2 h_q=2 s_kv=70000 topk=100 kv_format=fp8_656", kThere + "slots were kept in 16 bits",
       kThere + "slots were kept in 16 bits"},
      {"mut_page_stride_ignored", kPlain + " page_size=32 page_stride_rows=37", kThere + "page_stride_bytes were ignored",
       kThere + "page_stride_bytes were ignored"},
      {"mut_page_stride_ignored", kFp8 + " page_size=32 page_stride_rows=37", kThere + "page_stride_bytes were ignored",
       kThere + "page_stride_bytes were ignored"},
      {"mut_page_size_64", kPlain + " page_size=32 page_stride_rows=37", kThere + "page_size were 64", kThere + "page_size were 64"},
      {"mut_page_size_even", kPlain + " page_size=69 page_stride_rows=73", kThere + "page_size were even", kThere + "page_size were even"},
      {"mut_row_width_576", kWide, kThere + "rows were 576 values wide", kThere + "rows were 576 values wide"},
      {"mut_p_in_bf16", kHalf, "as if P were rounded to bf16, which is not declared", ""},
      {"mut_p_in_e4m3", kPlain, "as if P were rounded to e4m3, which is not declared", ""},
      {"mut_p_in_e4m3", kFp8, "as if P were rounded to e4m3, which is not declared", ""},
      {"mut_p_truncated", kMany, "as if P were truncated, not rounded, which is not declared", ""},
      {"mut_out_truncated", kMany, "as if out were truncated, not rounded, which is not declared", ""},
      {"mut_partials_in_bf16", kHalf + " num_splits=3", "as if partials of splits were rounded to bf16, which is not declared", ""},
      {"mut_acc_in_bf16", kHalf, "as if the running output were rounded to bf16 after each tile, which is not declared", ""},
      {"mut_product_in_bf16", kHalf, "as if products of P and V were rounded to bf16, which is not declared", ""},
      {"mut_scores_in_bf16", kPlain, "as if scores were rounded to bf16, which is not declared", ""},
      {"mut_q_in_e4m3", kPlain, "as if q were rounded to e4m3, which is not declared", ""},
      {"mut_lse_in_bf16", kPlain, "", "as if it were rounded to bf16, which is not declared"},
      {"mut_one_key_doubled", kPlain, "as if entry 75 counted twice", "as if entry 75 counted twice"},
      {"mut_last_tile_dropped", kPlain, "as if the last tile of 64 were left out", "as if the last tile of 64 were left out"},
      {"mut_hole_ends_row", kHoles, "as if the list ended at its first invalid entry", "as if the list ended at its first invalid entry"},
      {"mut_count_for_length", kHoles, "as if as many entries were read as are valid", "as if as many entries were read as are valid"},
      {"mut_minus_one_as_slot0", kHoles, "as if -1 were slot 0", "as if -1 were slot 0"},
      {"mut_tail_lanes_counted", kPlain, "as if the rest of the last tile counted, with score 0 and value 0",
       "as if the rest of the last tile counted, with score 0 and value 0"},
      {"mut_duplicates_dropped", kTwice, "as if a slot that is named twice counted once", "as if a slot that is named twice counted once"},
      {"mut_rope_omitted", kPlain, "as if the RoPE part were left out of the scores", "as if the RoPE part were left out of the scores"},
      {"mut_rope_in_values", kPlain, "as if V were the last d_v channels of K", ""},
      {"mut_scale_to_pow2", kFp8, "as if the fp8 scales were cut to powers of two", "as if the fp8 scales were cut to powers of two"},
      {"mut_scale_to_pow2_on_v", kFp8, "as if the fp8 scales were cut to powers of two, in V alone", ""},
      {"mut_scale_ignored", kFp8, "as if the fp8 scales were ignored", "as if the fp8 scales were ignored"},
      {"mut_no_scale_on_k", kFp8, "as if the fp8 scales were ignored, in K alone", "as if the fp8 scales were ignored, in K alone"},
      {"mut_no_scale_on_v", kFp8, "as if the fp8 scales were ignored, in V alone", ""},
      {"mut_scale_inverted", kFp8, "as if values were divided by the fp8 scales", ""},
      {"mut_first_scale_for_all", kFp8, "as if a row's first fp8 scale were that of all groups",
       "as if a row's first fp8 scale were that of all groups"},
      {"mut_scales_shifted", kFp8, "as if each group had the next one's fp8 scale", ""},
      {"mut_bias_of_fnuz", kFp8, "as if codes were e4m3fnuz, half the value", "as if codes were e4m3fnuz, half the value"},
      {"mut_heads_swapped", kPlain, "as if this were the answer to the neighbouring head", "as if this were the answer to the neighbouring head"},
      {"mut_heads_wrap_at_64", kHeads, "as if this were the answer to head h - 64", "as if this were the answer to head h - 64"},
      {"mut_requests_swapped", kPlain, "as if this were the out of the neighbouring request", ""},
      {"mut_out_heads_first", kPlain, "as if this were the out of the row there in [h_q][b * s_q]", ""},
      {"mut_row_b_plus_j", kPlain, "as if the list were that of row r + j", "as if the list were that of row r + j"},
      {"mut_lse_heads_before_tokens", kPlain, "", "as if this were the lse of the row there in [b][h_q][s_q]"},
      {"mut_lse_of_first_head", kPlain, "", "as if this were the lse of head 0"},
      {"mut_lse_in_base_2", kPlain, "", "as if it were in base 2"},
      {"mut_lse_with_sink", kSink, "", "as if it counted the sink"},
      {"mut_lse_is_max", kPlain, "", "as if it were the largest score"},
      {"mut_lse_without_max", kPlain, "", "as if the largest score were left out of it"},
      {"mut_lse_biased", kPlain, "", "it is right but for +2e-05"},
      {"mut_last_columns_unwritten", kPlain, "only channels 504 to 511 are wrong", ""},
      {"mut_one_head_zero", kPlain, "zeros were written", ""},
      {"mut_sum_not_rescaled", kPlain, "right but for a factor a row, 0.302 to 0.866", ""},
      {"mut_empty_lse_zero", kEmpty, "", "exactly the rows without a key are wrong"},
      {"mut_length_at_least_one", kBehind, kThere + "a topk_length of 0 were 1", kThere + "a topk_length of 0 were 1"},
  };
  for (const auto& p : planted) {
    const Causes causes = causes_of(p.kernel, p.line);
    INFO(p.kernel << " over " << p.line);
    CHECK(causes.out == p.out);
    CHECK(causes.lse == p.lse);
  }
}

TEST_CASE("a defect that is not in the table gets no cause") {
  for (const char* kernel :
       {"mut_values_swizzled", "mut_acc_not_rescaled", "mut_merge_averages", "mut_last_channels_of_first_head", "mut_one_value_wrong",
        "mut_rescale_skipped_below_8", "mut_groups_of_64", "mut_scale_of_key_before", "mut_codes_of_e5m2", "mut_sign_lost", "mut_sm_scale_yarn",
        "mut_scale_on_rope", "mut_out_shifted", "mut_exp_cut_at_8", "mut_exp_coarse", "mut_out_biased"})
    for (const std::string& line : {kPlain, kFp8, kSink, kHoles, kNeedle}) {
      INFO(kernel << " over " << line);
      const Causes causes = causes_of(kernel, line);
      CHECK_THAT(causes.out, !ContainsSubstring("as if"));
      CHECK_THAT(causes.lse, !ContainsSubstring("as if"));
    }
}

TEST_CASE("an lse that is hardly beyond its limit, or of a row without a key, is not explained by chance") {
  const std::string empty = "decode b=5 s_q=1 h_q=8 s_kv=500 topk=190 pattern=padded sink=pinf";
  CHECK_THAT(causes_of("mut_empty_lse_plus_inf", empty).lse, !ContainsSubstring("as if"));
  CHECK_THAT(causes_of("mut_tail_lanes_counted", kLong).out, !ContainsSubstring("as if out"));  // half an ulp smaller is not truncated
  CHECK_THAT(causes_of("mut_scores_in_bf16", kNeedle).lse, !ContainsSubstring("as if"));        // one key has all the weight
  for (const char* line : {"decode b=9 s_q=1 h_q=8 s_kv=700 topk=192 kv_format=fp8_656 topk_length=1 pattern=stale_tail",
                           "decode b=1 s_q=1 h_q=8 s_kv=32768 topk=2048 kv_format=fp8_656 pattern=sink_and_recent"})
    CHECK_THAT(causes_of("mut_lse_biased", line).lse, !ContainsSubstring("as if"));
}

TEST_CASE("what is right has no cause") {
  for (const char* kernel : {"cpu_naive", "cpu_split", "cpu_virtual_block_table", "cpu_split+p_bf16", "cpu_split+max_lazy"})
    for (const std::string& line : {kPlain, kFp8, kSink, kTwice, kNeedle, kEmpty}) {
      INFO(kernel << " over " << line);
      const Causes causes = causes_of(kernel, line);
      CHECK(causes.out.empty());
      CHECK(causes.lse.empty());
    }
}
