// SPDX-License-Identifier: Apache-2.0
// The table of planted defects: one row each.
#include "kernels/cpu/naive.h"
#include "kernels/cpu/virtual_table.h"
#include "kernels/mutants/fp8.h"
#include "kernels/mutants/indices.h"
#include "kernels/mutants/layout.h"
#include "kernels/mutants/mutant.h"
#include "kernels/mutants/rows.h"
#include "kernels/mutants/softmax.h"
#include "kernels/mutants/splits.h"

namespace smla::mutants {
namespace {

template <class T>
Defect plant() {
  static const T steps;
  return {&steps, std::nullopt};
}
Defect does(const Config& config) { return {plant<Healthy>().steps, config}; }

/// A body whose steps are looked up at run time.
template <class B>
Spec::Body planted() {
  return {B::workspace_bytes, B::splits, [](const Steps* defect, const Call& c, void* workspace) { B::run(*defect, c, workspace); }, B::refuses};
}

constexpr Base kNaive = Base::naive, kSplit = Base::split, kDense = Base::dense, kVirtual = Base::virtual_block_table,
               kSm120 = Base::like_flashinfer_sm120, kTriton = Base::like_vllm_triton;

const Mutant kTable[] = {
    // ---- what becomes of an entry
    {"mut_minus_one_before_pool", kSplit, plant<MinusOneBeforePool>(), "-1 loads the row before the pool, masked in the score only",
     "radixark/miles#2079"},
    {"mut_minus_one_trusted", kVirtual, plant<MinusOneTrusted>(), "-1 inside the valid prefix is read as a slot", "sgl-project/sglang#30645"},
    {"mut_minus_one_as_slot0", kSplit, plant<MinusOneAsSlot0>(), "-1 is read as slot 0, and counted", "vllm-project/vllm#45324"},
    {"mut_invalid_loads_slot0", kSplit, plant<InvalidLoadsSlot0>(), "an invalid entry loads slot 0, masked in the score, V not zeroed",
     "ROCm/aiter#4245 vllm-project/vllm#57156"},
    {"mut_no_upper_range_test", kSplit, plant<NoUpperRangeTest>(), "only negative entries are invalid",
     "deepseek-ai/FlashMLA#184 tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#2"},
    {"mut_no_lower_range_test", kNaive, plant<NoLowerRangeTest>(), "of the negative entries only -1 is invalid", ""},
    {"mut_out_of_range_wraps", kSplit, plant<OutOfRangeWraps>(), "a slot of somebody else's pool is taken modulo this one's",
     "vllm-project/vllm#54541"},
    {"mut_out_of_range_clamped", kSplit, plant<OutOfRangeClamped>(), "a slot beyond the pool is clamped to the last one, and counted", ""},
    {"mut_slot0_invalid", kSplit, plant<Slot0Invalid>(), "slot 0 counts as invalid", ""},
    {"mut_last_slot_invalid", kSplit, plant<LastSlotInvalid>(), "the last slot of the pool counts as invalid", ""},
    {"mut_bounded_by_context", kSplit, plant<BoundedByContext>(), "slots are bounded by b * s_kv, not by the pool", ""},
    {"mut_page_bounded_by_table", kSplit, plant<PageBoundedByTable>(), "physical pages are bounded by the width of the page table",
     "NVIDIA/cutlass#2221"},
    {"mut_position_for_index", kSplit, plant<PositionForIndex>(), "the position in the list is used instead of the entry", ""},
    {"mut_first_key_is_slot0", kNaive, plant<FirstKeyIsSlot0>(), "the first key is taken to be position 0 whatever the list says",
     "hw-native-sys/pypto-lib#158"},
    {"mut_one_index_off_by_one", kSplit, plant<OneIndexOffByOne>(), "one entry of a row names the neighbouring slot", ""},
    {"mut_one_key_doubled", kSplit, plant<OneKeyDoubled>(), "one key of a row is counted twice", ""},
    {"mut_first_key_dropped", kSplit, plant<FirstKeyDropped>(), "the first key of a row is left out", ""},
    {"mut_last_key_dropped", kSplit, plant<LastKeyDropped>(), "the last key of a row is left out", ""},
    {"mut_last_key_dropped_virtual", kVirtual, plant<LastKeyDropped>(), "the virtual block table is one slot short", ""},
    {"mut_last_tile_dropped", kSplit, plant<LastTileDropped>(), "the last tile of a row is left out", ""},
    {"mut_remainder_dropped", kSplit, plant<RemainderDropped>(), "a last tile that is not full is left out", ""},
    {"mut_remainder_is_slot0", kSplit, plant<RemainderIsSlot0>(), "the rest of the last tile loads slot 0, and counts it", "tile-ai/tilelang#1252"},
    {"mut_tail_lanes_counted", kSplit, plant<TailLanesCounted>(), "the rest of the last tile is zero but counted", "NVIDIA/cudnn-frontend#445"},
    {"mut_tail_values_loaded", kSplit, plant<TailValuesLoaded>(), "entries behind topk_length are loaded with the last tile; their weight is 0",
     "Dao-AILab/flash-attention#2374"},
    {"mut_tail_values_loaded_dense", kDense, plant<TailValuesLoaded>(),
     "tokens behind a request's length are loaded with the last tile; their weight is 0",
     "flashinfer-ai/flashinfer#941 Dao-AILab/flash-attention#1745"},
    {"mut_zero_fill_one_late", kDense, plant<ZeroFillOneLate>(), "zeroing of the last tile begins one token late", "vllm-project/vllm#936"},
    {"mut_mask_by_addition", kSplit, plant<MaskByAddition>(), "invalid entries are masked by adding -inf to what slot 0 scores",
     "deepbeepmeep/Wan2GP#1628"},
    {"mut_mask_before_scale", kSplit, plant<MaskBeforeScale>(), "a large finite mask: a row of invalid entries only returns V of slot 0",
     "flashinfer-ai/flashinfer#3395"},
    {"mut_hole_ends_row", kSplit, plant<HoleEndsRow>(), "a row ends at its first invalid entry, undeclared", ""},
    {"mut_count_for_length", kNaive, plant<CountForLength>(), "as many entries are read as are valid, from the front", ""},
    {"mut_duplicates_dropped", kNaive, plant<DuplicatesDropped>(), "a slot named twice counts once", ""},
    {"mut_slot_in_16_bits", kSplit, plant<SlotIn16Bits>(), "slot numbers are kept in 16 bits", ""},
    {"mut_runs_of_four", kSplit, plant<RunsOfFour>(), "entries are gathered in runs of four from the first of them", ""},
    {"mut_hangs_on_invalid_tile", kSplit, plant<HangsOnInvalidTile>(), "waits for a tile that has no valid entry", "tenstorrent/tt-metal#45079"},
    {"mut_skipped_tile_reads_scratch", kSplit, plant<SkippedTileReadsScratch>(), "scores of a tile without keys are not written, but read",
     "openvinotoolkit/openvino#33814"},
    {"mut_stale_key", kSplit, plant<StaleKey>(), "from the second tile on the last key is read before it was loaded", "sgl-project/sglang#39124"},

    // ---- lengths, tables, arguments
    {"mut_topk_length_ignored", kSplit, plant<TopkLengthIgnored>(), "every entry that looks valid is used", "vllm-project/vllm#36616"},
    {"mut_topk_length_to_tile", kSplit, plant<TopkLengthToTile>(), "topk_length is rounded up to a whole tile",
     "tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#2"},
    {"mut_topk_length_one_too_long", kSplit, plant<TopkLengthOneTooLong>(), "one entry behind topk_length is used", ""},
    {"mut_length_at_least_one", kSplit, plant<LengthAtLeastOne>(), "length 0 is taken for 1", "sgl-project/sglang#1779"},
    {"mut_length_at_least_one_dense", kDense, plant<LengthAtLeastOne>(), "a request of length 0 attends its first slot", "vllm-project/vllm#35969"},
    {"mut_topk_length_by_request", kSplit, plant<TopkLengthByRequest>(), "topk_length is indexed by request, not by query token", ""},
    {"mut_topk_length_of_first_row", kNaive, plant<TopkLengthOfFirstRow>(), "every row has the first row's topk_length", ""},
    {"mut_topk_capped", kSplit, plant<TopkCapped>(), "a list longer than 512 is cut", ""},
    {"mut_topk_2048", kSplit, plant<Topk2048>(), "rows of indices are taken to be 2048 wide", "sgl-project/sglang#39431"},
    {"mut_index_rows_aligned", kSplit, plant<IndexRowsAligned>(), "rows of indices are taken to be padded to 64", "NVIDIA/cudnn-frontend#311"},
    {"mut_index_rows_packed", kSplit, plant<IndexRowsPacked>(), "strides of indices are ignored", "vllm-project/vllm#57388"},
    {"mut_indices_by_request", kSplit, plant<IndicesByRequest>(), "every query token of a request uses the first one's indices", ""},
    {"mut_row_b_plus_j", kSplit, plant<RowOfBatchPlusQuery>(), "row r + j is read instead of r * s_q + j: right for one request",
     "sgl-project/sglang#16678"},
    {"mut_second_chunk_reads_first", kSplit, plant<SecondChunkReadsFirst>(), "every chunk of 16 query tokens gathers with the first one's indices",
     "vllm-project/vllm#40018"},
    {"mut_table_by_query", kDense, plant<TableByQuery>(), "block_table is indexed by query token where it has a row a request",
     "vllm-project/vllm#51848"},
    {"mut_table_by_request", kDense, plant<TableByRequest>(), "block_table is indexed by request where it has a row a query token", ""},
    {"mut_negative_length_unsigned", kDense, plant<NegativeLengthUnsigned>(), "seq_lens - s_q + j + 1 below zero is read as unsigned",
     "sgl-project/sglang#30378"},
    {"mut_length_of_longest", kDense, plant<LengthOfLongest>(), "every request has the longest one's length", ""},
    {"mut_length_of_next_request", kDense, plant<LengthOfNextRequest>(), "every request has the next one's length", ""},
    {"mut_future_position", kDense, plant<FuturePosition>(), "a query sees one position too many", ""},
    {"mut_not_causal", kDense, plant<NotCausal>(), "every query of a request sees all of its positions", "vllm-project/vllm#45227"},
    {"mut_causal_from_top_left", kDense, plant<CausalFromTopLeft>(), "query j sees positions 0 to j", ""},
    {"mut_not_itself", kDense, plant<NotItself>(), "a query does not see its own position", ""},
    {"mut_last_partial_page_dropped", kDense, plant<LastPartialPageDropped>(), "pages are counted by floor, not ceil", "vllm-project/vllm#46074"},
    {"mut_empty_reads_before_table", kDense, plant<EmptyReadsBeforeTable>(), "length 0 reads block_table[-1]", "vllm-project/vllm#35969"},
    {"mut_table_of_other_page_size", kDense, plant<TableOfOtherPageSize>(), "block_table is read as if pages were twice as long",
     "vllm-project/vllm#53906"},
    {"mut_page_taken_for_slot", kDense, plant<PageTakenForSlot>(), "a page number is used as a slot number: right for page_size 1",
     "ROCm/aiter#2996 ROCm/aiter#3095"},
    {"mut_page_incremented", kDense, plant<PageIncremented>(), "within a tile the page number is incremented instead of looked up",
     "tenstorrent/tt-metal#54742"},
    {"mut_query_of_first_token", kSplit, plant<QueryOfFirstToken>(), "every query token of a request uses the first one's q", ""},
    {"mut_sink_ignored", kSplit, plant<SinkIgnored>(), "the sink is not read", "vllm-project/vllm#54568"},
    {"mut_sink_by_row", kSplit, plant<SinkByRow>(), "the sink is indexed by query token, not by head", ""},
    {"mut_sink_of_first_head", kNaive, plant<SinkOfFirstHead>(), "every head has the first one's sink", ""},
    {"mut_sink_scaled", kSplit, plant<SinkScaled>(), "the sink is multiplied by sm_scale", ""},
    {"mut_sink_twice", kSplit, plant<SinkTwice>(), "the sink counts twice", ""},
    {"mut_sink_in_base_2", kSplit, plant<SinkInBase2>(), "the sink enters as 2^s", ""},

    // ---- where things stand
    {"mut_offset_in_int32_elements", kSplit, plant<OffsetInInt32Elements>(), "element offsets in 32 bits, signed", "lightseekorg/tokenspeed#501"},
    {"mut_offset_in_uint32_elements", kSplit, plant<OffsetInUint32Elements>(), "element offsets modulo 2^32", "flashinfer-ai/flashinfer#3130"},
    {"mut_offset_in_uint32_bytes", kSplit, plant<OffsetInUint32Bytes>(), "byte offsets modulo 2^32", "ROCm/aiter#4452 LMCache/LMCache#2567"},
    {"mut_page_offset_in_int32", kSplit, plant<PageOffsetInInt32>(), "page * page stride in 32 bits, signed", "vllm-project/vllm#46222"},
    {"mut_page_in_24_bits", kSplit, plant<PageIn24Bits>(), "page numbers pass through a 24-bit multiply", "ROCm/aiter#4452",
     "needs 2^24 pages: 19 GB of address space and more bookkeeping than a case may take"},
    {"mut_page_size_64", kSplit, plant<PageSize64>(), "page size hard-coded 64", "flashinfer-ai/flashinfer#3395 sgl-project/sgl-kernel-xpu#335"},
    {"mut_page_size_even", kSplit, plant<PageSizeEven>(), "the page size is rounded up to an even one", "sgl-project/sglang-jax#1074"},
    {"mut_page_stride_ignored", kSplit, plant<PageStrideIgnored>(), "pages are taken to be packed", "vllm-project/vllm-xpu-kernels#165"},
    {"mut_row_width_576", kSplit, plant<RowWidth576>(), "rows of 512 values are walked in steps of 576", "vllm-project/vllm#56314"},
    {"mut_row_bytes_doubled", kSplit, plant<RowBytesDoubled>(), "a cache of K alone is walked as K and V", "NVIDIA/TensorRT-LLM#4943"},
    {"mut_wide_rows_for_several_queries", kSplit, plant<WideRowsForSeveralQueries>(), "d_qk 512 with s_q > 1 falls through to the kernel for 576",
     "vllm-project/vllm#53963"},
    {"mut_q_packed", kSplit, plant<QPacked>(), "strides of q are ignored", ""},
    {"mut_q_heads_before_tokens", kSplit, plant<QHeadsBeforeTokens>(), "q is read as [b][h_q][s_q]", ""},
    {"mut_out_packed", kSplit, plant<OutPacked>(), "strides of out are ignored", ""},
    {"mut_out_stride_of_q", kSplit, plant<OutStrideOfQ>(), "out is written with q's strides", "NVIDIA/TensorRT-LLM#12089"},
    {"mut_lse_packed", kSplit, plant<LsePacked>(), "strides of lse are ignored", ""},
    {"mut_lse_heads_before_tokens", kSplit, plant<LseHeadsBeforeTokens>(), "lse is written as [b][h_q][s_q]", "vllm-project/flash-attention#195"},
    {"mut_heads_swapped", kSplit, plant<HeadsSwapped>(), "neighbouring heads are swapped", ""},
    {"mut_heads_wrap_at_64", kSplit, plant<HeadsWrapAt64>(), "heads above 64 use the q of those below", ""},
    {"mut_out_queries_reversed", kSplit, plant<OutQueriesReversed>(), "outputs of a request's query tokens stand in reverse order", ""},
    {"mut_requests_swapped", kSplit, plant<RequestsSwapped>(), "neighbouring requests have each other's output", ""},
    {"mut_out_heads_first", kSplit, plant<OutHeadsFirst>(), "out is written as [h_q][b * s_q]", ""},
    {"mut_lse_of_first_head", kSplit, plant<LseOfFirstHead>(), "every head has the first one's lse", ""},
    {"mut_rows_above_65535_dropped", kSplit, plant<RowsAbove65535Dropped>(), "query tokens from 65535 on are not run",
     "deepseek-ai/FlashMLA#182 deepseek-ai/FlashMLA#173"},
    {"mut_launch_above_65535_rejected", kNaive, plant<LaunchAbove65535Rejected>(), "a rejected launch is not noticed, and nothing is written",
     "flashinfer-ai/flashinfer#4534"},
    {"mut_no_instance_for_32_heads", kSplit, plant<NoInstanceFor32Heads>(), "one number of heads has no instance: nothing is written",
     "vllm-project/vllm#42956 flashinfer-ai/flashinfer#5135"},
    {"mut_groups_of_eight", kSplit, plant<GroupsOfEight>(), "work is scheduled in groups of eight, without the rest", "ROCm/FlyDSL#979"},
    {"mut_one_row_too_many", kNaive, plant<OneRowTooMany>(), "the grid is longer than the output", "vllm-project/vllm#48611 vllm-project/vllm#51970"},
    {"mut_one_head_zero", kSplit, plant<OneHeadZero>(), "one head is zero", ""},
    {"mut_heads_below_16", kSplit, plant<HeadsBelow16>(), "only whole blocks of 16 heads are written", "vllm-project/vllm#40763 ROCm/aiter#2821"},
    {"mut_last_columns_unwritten", kSplit, plant<LastColumnsUnwritten>(), "the last eight columns of out are not written", ""},
    {"mut_no_lse_when_split", kSplit, plant<NoLseWhenSplit>(), "the path with several splits writes no lse", "vllm-project/vllm#54639"},
    {"mut_rows_written_packed", kSplit, plant<RowsWrittenPacked>(), "empty rows are left out of the output, and those behind them move up",
     "sgl-project/sglang#19902"},
    {"mut_empty_row_writes_pool", kSplit, plant<EmptyRowWritesPool>(), "an empty row writes to slot 0", "huggingface/transformers#46765"},

    // ---- scale, maximum, sum
    {"mut_sm_scale_ignored", kSplit, plant<SmScaleIgnored>(), "sm_scale is not applied", "onnxruntime/mobius#548 NVIDIA/TensorRT-LLM#12089"},
    {"mut_sm_scale_twice", kSplit, plant<SmScaleTwice>(), "sm_scale is applied twice", "AI-Hypercomputer/maxtext#3138"},
    {"mut_sm_scale_doubled", kNaive, plant<SmScaleDoubled>(), "sm_scale is doubled", ""},
    {"mut_sm_scale_absorbed", kSplit, plant<SmScaleAbsorbed>(), "d_qk^-0.5 instead of the sm_scale given", "ollama/ollama#13893"},
    {"mut_sm_scale_192", kSplit, plant<SmScale192>(), "192^-0.5 instead of the sm_scale given", "flashinfer-ai/flashinfer#2607"},
    {"mut_sm_scale_yarn", kSplit, plant<SmScaleYarn>(), "sm_scale without the square of YaRN's mscale", "NVIDIA/Megatron-LM#1429"},
    {"mut_sm_scale_in_bf16", kSplit, plant<SmScaleInBf16>(), "sm_scale is rounded to bf16", ""},
    {"mut_max_unguarded", kSplit, plant<MaxUnguarded>(), "-inf - -inf where the first tile has no valid entry",
     "vllm-project/vllm#48364 pegainfer-project/pegainfer#21"},
    {"mut_finite_first_max", kSplit, plant<FiniteFirstMax>(), "the running maximum starts at -30000", "flashinfer-ai/flashinfer#4401"},
    {"mut_first_max_zero", kSplit, plant<FirstMaxZero>(), "the running maximum starts at 0", ""},
    {"mut_max_of_first_tile", kSplit, plant<MaxOfFirstTile>(), "the maximum of the first tile is kept", ""},
    {"mut_max_shared_by_heads", kSplit, plant<MaxSharedByHeads>(), "all heads share one running maximum", ""},
    {"mut_no_max", kSplit, plant<NoMax>(), "exp without a maximum taken out", ""},
    {"mut_acc_not_rescaled", kSplit, plant<AccNotRescaled>(), "the output is not rescaled when the maximum moves", ""},
    {"mut_sum_not_rescaled", kSplit, plant<SumNotRescaled>(), "the row sum is not rescaled when the maximum moves", ""},
    {"mut_rescale_skipped_below_8", kSplit, plant<RescaleSkippedBelow8>(), "the maximum moves by less than 8 without a rescale", ""},
    {"mut_sum_of_rounded_p", kSplit, does({.row_sum = RowSum::rounded}), "the row sum adds the rounded P, undeclared", ""},
    {"mut_sum_epsilon", kNaive, plant<SumEpsilon>(), "1e-4 is added to the row sum", ""},
    {"mut_sum_reused_in_a_race", kSplit, plant<SumReusedInARace>(), "now and then a head reads the row sum of the head before",
     "PaddlePaddle/PaddleFleet#2012"},
    {"mut_exp_in_base_2", kSplit, plant<ExpInBase2>(), "2^x for e^x", ""},
    {"mut_exp_coarse", kSplit, plant<ExpCoarse>(), "exp to ten bits", ""},
    {"mut_exp_cut_at_8", kSplit, plant<ExpCutAt8>(), "keys more than 8 below the maximum are left out", ""},

    // ---- empty rows
    {"mut_sum_unguarded", kNaive, plant<SumUnguarded>(), "0 / 0 where a row has no key", "sgl-project/sgl-kernel-xpu#200"},
    {"mut_merge_unguarded", kSplit, plant<MergeUnguarded>(), "-inf - -inf where no split has a key", "vllm-project/vllm#57094"},
    {"mut_empty_left_alone_when_split", kSplit, plant<EmptyLeftAloneWhenSplit>(), "empty rows are handled only by the path without splits",
     "flashinfer-ai/flashinfer#2883"},
    {"mut_leading_empty_rows_unguarded", kSplit, plant<LeadingEmptyRowsUnguarded>(), "empty rows are guarded only once a row before them had a key",
     "ikawrakow/ik_llama.cpp#2344"},
    {"mut_empty_lse_zero", kSplit, plant<EmptyLse<0>>(), "lse of an empty row is 0", "pytorch/pytorch#134650"},
    {"mut_empty_lse_lowest", kSplit, plant<EmptyLse<1>>(), "lse of an empty row is the lowest float", "deepseek-ai/FlashMLA:tests/ref.py"},
    {"mut_empty_lse_plus_inf", kNaive, plant<EmptyLse<2>>(), "lse of an empty row is +inf, undeclared", "deepseek-ai/FlashMLA:tests/ref.py"},
    {"mut_empty_lse_nan", kDense, plant<EmptyLse<3>>(), "lse of an empty row is NaN", "deepseek-ai/FlashMLA:tests/ref.py"},
    {"mut_empty_lse_unwritten", kSplit, plant<EmptyLseUnwritten>(), "lse of an empty row is not written", "deepseek-ai/FlashMLA:tests/ref.py"},
    {"mut_empty_out_unwritten", kSplit, plant<EmptyOutUnwritten>(), "out of an empty row is not written", ""},

    // ---- lse and sink
    {"mut_lse_in_base_2", kSplit, plant<LseInBase2>(), "lse in base 2, undeclared", "sgl-project/sglang#33064 vllm-project/vllm#47079"},
    {"mut_lse_without_max", kNaive, plant<LseWithoutMax>(), "lse without the maximum", ""},
    {"mut_lse_is_max", kNaive, plant<LseIsMax>(), "the maximum for the lse", ""},
    {"mut_lse_in_bf16", kSplit, plant<LseInBf16>(), "lse rounded to bf16, undeclared", ""},
    {"mut_lse_biased", kSplit, plant<LseBiased>(), "lse is 2e-5 too large", ""},
    {"mut_lse_with_sink", kSplit, plant<LseWithSink>(), "lse counts the sink, undeclared", ""},
    {"mut_sink_unguarded", kSplit, plant<SinkUnguarded>(), "exp(lse) and exp(sink) without a common maximum", "flashinfer-ai/flashinfer#5119"},
    {"mut_sink_against_joint_max", kSplit, plant<SinkAgainstJointMax>(), "+inf - +inf for a sink of +inf", ""},
    {"mut_sink_per_split", kSplit, plant<SinkPerSplit>(), "every split counts the sink", ""},
    {"mut_sink_against_first_tile", kSplit, plant<SinkAgainstFirstTile>(), "the sink is measured from the maximum of a tile without keys",
     "sgl-project/sgl-kernel-xpu#235"},

    // ---- splits
    {"mut_merge_multiplies_nothing", kSplit, plant<MergeMultipliesNothing>(), "the partial output of an empty split is multiplied by 0, not left out",
     "ROCm/aiter#4711"},
    {"mut_merge_without_max", kSplit, plant<MergeWithoutMax>(), "partials are merged by exp(lse) without a maximum", ""},
    {"mut_merge_in_base_2", kSplit, plant<MergeInBase2>(), "partials with lse in base e are merged in base 2", "sgl-project/sglang#40903"},
    {"mut_merge_averages", kSplit, plant<MergeAverages>(), "partials are averaged", ""},
    {"mut_merged_lse_is_max", kSplit, plant<MergedLseIsMax>(), "the merged lse is the largest partial one", ""},
    {"mut_merge_by_arrival", kSplit, plant<MergeByArrival>(), "partials are added in the order of arrival, undeclared",
     "ROCm/aiter#4364 radixark/miles#3155"},
    {"mut_last_split_missing", kSplit, plant<LastSplitMissing>(), "the last split is not merged", "sgl-project/sglang#2465"},
    {"mut_splits_by_position", kSplit, plant<SplitsByPosition>(), "how a row is split depends on its place in the batch, undeclared",
     "deepseek-ai/FlashMLA#212"},
    {"mut_split_boundary_dropped", kSplit, plant<SplitBoundaryDropped>(), "the first key of every split but the first is left out", ""},
    {"mut_splits_overlap", kSplit, plant<SplitsOverlap>(), "the last key of every split but the last is counted twice", ""},
    {"mut_split_remainder_dropped", kSplit, plant<SplitRemainderDropped>(), "tiles that do not divide by the splits are left out", ""},
    {"mut_empty_split_counts", kSplit, plant<EmptySplitCounts>(), "an empty split is merged with an lse of 0", ""},
    {"mut_splits_frozen", kSplit, plant<SplitsFrozen>(), "keys are divided by the split count of the first call", "vllm-project/vllm#51119"},
    {"mut_counter_not_reset", kSplit, plant<CounterNotReset>(), "the count of arrived splits is not reset", "flashinfer-ai/flashinfer#3582"},
    {"mut_partials_of_padded_heads", kSplit, plant<PartialsOfPaddedHeads>(), "partials are written with heads padded to 16 and read without",
     "vllm-project/vllm#51011"},
    {"mut_partials_stride_times_queries", kSplit, plant<PartialsStrideTimesQueries>(), "the stride of partials is multiplied by s_q once too often",
     "vllm-project/vllm#45227"},
    {"mut_partials_in_bf16", kSplit, does({.part = Rounding::bf16}), "partials in bf16, undeclared", ""},

    // ---- arithmetic
    {"mut_p_truncated", kSplit, plant<PTruncated>(), "P is truncated, not rounded", ""},
    {"mut_p_subnormals_flushed", kSplit, plant<PSubnormalsFlushed>(), "P in fp16 below 2^-14 is 0", ""},
    {"mut_p_in_bf16", kSplit, does({.p = Rounding::bf16}), "P in bf16 for q in fp16, undeclared", ""},
    {"mut_p_in_e4m3", kSplit, does({.p = Rounding::e4m3, .p_scale = 256}), "P in e4m3, undeclared", ""},
    {"mut_q_in_e4m3", kSplit, does({.q = Rounding::e4m3}), "q in e4m3, undeclared", ""},
    {"mut_acc_in_bf16", kSplit, plant<AccInBf16>(), "the output accumulates in bf16", ""},
    {"mut_product_in_bf16", kSplit, plant<ProductInBf16>(), "p * v is rounded to bf16 before it is added", "deepseek-ai/FlashMLA@c759027"},
    {"mut_scores_in_bf16", kSplit, plant<ScoresInBf16>(), "scores are rounded to bf16", ""},
    {"mut_out_truncated", kSplit, plant<OutTruncated>(), "out is truncated, not rounded", ""},
    {"mut_out_biased", kSplit, plant<OutBiased>(), "out is half an ulp too large", ""},
    {"mut_out_shifted", kSplit, plant<OutShifted>(), "out is 1e-4 too large", ""},
    {"mut_q_scaled_and_rounded", kSplit, plant<QScaledAndRounded>(), "q * sm_scale is rounded to q's type", ""},

    // ---- values
    {"mut_last_tile_of_v_doubled", kSplit, plant<LastTileOfVDoubled>(), "V of the last tile is scaled by 2", ""},
    {"mut_one_value_wrong", kSplit, plant<OneValueWrong>(), "V of one key is that of the key before", ""},
    {"mut_values_swizzled", kSplit, plant<ValuesSwizzled>(), "neighbouring 16-byte pieces of V are swapped in every second key",
     "flashinfer-ai/flashinfer#2689"},
    {"mut_rope_omitted", kSplit, plant<RopeOmitted>(), "the RoPE part is left out of the scores", ""},
    {"mut_values_through_fp16", kSplit, plant<ValuesThroughFp16>(), "bf16 values pass through fp16", ""},
    {"mut_rope_in_values", kSplit, plant<RopeInValues>(), "V is the last d_v channels of K", ""},
    {"mut_last_channels_of_first_head", kSplit, plant<LastChannelsOfFirstHead>(), "the last 16 channels of q are the first head's",
     "flashinfer-ai/flashinfer#2689"},

    // ---- fp8_656
    {"mut_scale_to_pow2", kSplit, plant<ScaleToPow2>(), "scales are cut to a power of two", "deepseek-ai/FlashMLA#184 vllm-project/vllm#54563"},
    {"mut_scale_to_pow2_on_v", kSplit, plant<Pow2On<Side::v>>(), "scales are cut to a power of two for V only", ""},
    {"mut_scale_ignored", kSplit, plant<ScaleIgnored>(), "scales are taken for 1", "NVIDIA/TensorRT-LLM#16916"},
    {"mut_scale_in_bf16", kNaive, plant<ScaleInBf16>(), "scales are rounded to bf16", ""},
    {"mut_scale_inverted", kSplit, plant<ScaleInverted>(), "values are divided by the scales", ""},
    {"mut_no_scale_on_k", kSplit, plant<NoScaleOn<Side::k>>(), "scales are applied to V only", ""},
    {"mut_no_scale_on_v", kSplit, plant<NoScaleOn<Side::v>>(), "scales are applied to K only", ""},
    {"mut_first_scale_for_all", kSplit, plant<FirstScaleForAll>(), "one scale a row", "vllm-project/vllm#48611"},
    {"mut_scales_shifted", kSplit, plant<ScalesShifted>(), "each group has the next one's scale", ""},
    {"mut_groups_of_64", kSplit, plant<GroupsOf64>(), "groups of 64 values, not of 128", ""},
    {"mut_scale_of_key_before", kSplit, plant<ScaleOfKeyBefore>(), "each key has the scales of the key before", ""},
    {"mut_scale_of_tile_before", kSplit, plant<ScaleOfTileBefore>(), "each key has the scales of the key a tile before", ""},
    {"mut_largest_scale_for_tile", kSplit, plant<LargestScaleForTile>(), "one scale a tile for V", ""},
    {"mut_norm_lost", kSplit, plant<NormLost>(), "the power of two taken out of the scales is not put back", ""},
    {"mut_scale_on_rope", kSplit, plant<ScaleOnRope>(), "the last scale is applied to the RoPE part too", ""},
    {"mut_rope_through_fp8", kSplit, plant<RopeThroughFp8>(), "the RoPE part is stored under the latent's scale", "vllm-project/vllm#42956"},
    {"mut_rope_of_other_type", kSplit, plant<RopeOfOtherType>(), "RoPE bytes are read as the other 16-bit type", ""},
    {"mut_subnormals_flushed", kSplit, plant<SubnormalsFlushed>(), "subnormal codes are read as 0", ""},
    {"mut_bias_of_fnuz", kNaive, plant<BiasOfFnuz>(), "codes are read as e4m3fnuz: half the value", "sgl-project/sglang#28455"},
    {"mut_codes_of_e5m2", kSplit, plant<CodesOfE5m2>(), "codes are read as e5m2", ""},
    {"mut_sign_lost", kSplit, plant<SignLost>(), "the sign of a code is lost", ""},
    {"mut_dequantised_undeclared", kSplit, does({.fp8 = Fp8::dequantise}), "values are rounded to q's type, undeclared", ""},

    // ---- under the contracts of kernels in wide use
    {"mut_sm120_last_key_dropped", kSm120, plant<LastKeyDropped>(), "the last key of a row is left out", ""},
    {"mut_sm120_minus_one_as_slot0", kSm120, plant<MinusOneAsSlot0>(), "-1 is read as slot 0, and counted", "vllm-project/vllm#45324"},
    {"mut_sm120_one_index_off_by_one", kSm120, plant<OneIndexOffByOne>(), "one entry of a row names the neighbouring slot", ""},
    {"mut_sm120_one_value_wrong", kSm120, plant<OneValueWrong>(), "V of one key is that of the key before", ""},
    {"mut_sm120_scale_to_pow2", kSm120, plant<ScaleToPow2>(), "scales are cut to a power of two", "vllm-project/vllm#54563"},
    {"mut_sm120_sink_ignored", kSm120, plant<SinkIgnored>(), "the sink is not read", "vllm-project/vllm#54568"},
    {"mut_sm120_lse_in_base_e", kSm120, plant<LseInBaseE>(), "lse in base e where base 2 is declared", "vllm-project/vllm#47079"},
    {"mut_sm120_lse_without_sink", kSm120, plant<LseWithoutSink>(), "lse without the sink where it is declared to count", ""},
    {"mut_sm120_empty_lse_zero", kSm120, plant<EmptyLse<0>>(), "lse of an empty row is 0", ""},
    {"mut_sm120_split_boundary_dropped", kSm120, plant<SplitBoundaryDropped>(), "the first key of every split but the first is left out", ""},
    {"mut_triton_last_key_dropped", kTriton, plant<LastKeyDropped>(), "the last key of a row is left out", ""},
    {"mut_triton_minus_one_as_slot0", kTriton, plant<MinusOneAsSlot0>(), "-1 is read as slot 0, and counted", "vllm-project/vllm#45324"},
    {"mut_triton_one_index_off_by_one", kTriton, plant<OneIndexOffByOne>(), "one entry of a row names the neighbouring slot", ""},
    {"mut_triton_one_key_doubled", kTriton, plant<OneKeyDoubled>(), "one key of a row is counted twice", ""},
    {"mut_triton_lse_in_base_2", kTriton, plant<LseInBase2>(), "lse in base 2, undeclared", "vllm-project/vllm#47079"},
    {"mut_triton_lse_with_sink", kTriton, plant<LseWithSink>(), "lse counts the sink, undeclared", ""},
    {"mut_triton_scale_to_pow2", kTriton, plant<ScaleToPow2>(), "scales are cut to a power of two", "vllm-project/vllm#54563"},
    {"mut_triton_acc_in_bf16", kTriton, plant<AccInBf16>(), "the output accumulates in bf16", ""},
};

// Reports of the same classes that have no mutant on the CPU.
const Excused kExcused[] = {
    {"ROCm/aiter#4667", "no kernel's fault: a selected slot held NaN, which must reach its own row's output"},
    {"deepseek-ai/FlashMLA@ebf3064", "a grid of no blocks: GPU; and b, s_q >= 1 at this door"},
    {"xLLM-AI/xllm#1939", "metadata frozen in a captured graph: GPU"},
    {"deepseek-ai/FlashMLA#39", "no image for the device's architecture: GPU, answered by `supports`"},
    {"vllm-project/vllm#49886", "cause not known: wrong on one GPU architecture only"},
    {"sgl-project/sglang#35795", "a test's tolerance, not a kernel: false alarms of healthy kernels are counted instead"},
    {"flashinfer-ai/flashinfer#3505", "a test's tolerance, not a kernel: both roundings are healthy, and both are variants"},
    {"flashinfer-ai/flashinfer#949", "cause not known: wrong on one GPU architecture only"},
    {"sgl-project/sglang#35257", "the indexer's choice of keys, not attention"},
};

}  // namespace

std::span<const Mutant> table() { return kTable; }
std::span<const Excused> excused() { return kExcused; }

const char* base_name(Base base) {
  static constexpr const char* kNames[] = {
      "cpu_naive", "cpu_split", "cpu_dense", "cpu_virtual_block_table", "cpu_split+like_flashinfer_sm120", "cpu_split+like_vllm_triton"};
  return kNames[static_cast<size_t>(base)];
}

std::span<const smla_kernel> kernels() {
  static const std::vector<Spec> specs = [] {
    const auto variant = [](Base base) {
      for (const smla_kernel& kernel : cpu::variants())
        if (kernel.name == std::string_view(base_name(base))) return static_cast<const Spec*>(kernel.user)->config;
      throw std::logic_error("no variant is called so");
    };
    static const Config kDeclared[] = {naive_config(), {}, {.source = Source::table}, {}, variant(kSm120), variant(kTriton)};
    const Spec::Body kBodies[] = {planted<NaiveBody>(),        planted<SplitBody>(), planted<SplitBody>(),
                                  planted<VirtualTableBody>(), planted<SplitBody>(), planted<SplitBody>()};
    std::vector<Spec> all;
    for (const Mutant& mutant : kTable) {
      const auto base = static_cast<size_t>(mutant.base);
      const Config& declared = kDeclared[base];
      all.push_back({mutant.name, mutant.mechanism, mutant.defect.config.value_or(declared), kBodies[base], mutant.defect.steps, &declared});
    }
    return all;
  }();
  static const std::vector<smla_kernel> all = door(specs);
  return all;
}

}  // namespace smla::mutants
