// SPDX-License-Identifier: Apache-2.0
// The CPU kernels: one row each.
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/naive.h"
#include "kernels/cpu/split.h"
#include "kernels/cpu/virtual_table.h"

namespace smla::cpu {
namespace {

const Spec kKernels[] = {
    {"cpu_naive", "fp32, one query token at a time, no tiles and no splits", naive_config(), healthy<NaiveBody>()},
    {"cpu_split", "blocked online softmax, split over keys, P rounded like a GPU kernel's", {}, healthy<SplitBody>()},
    {"cpu_dense", "cpu_split's body over block_table and seq_lens", {.source = Source::table}, healthy<SplitBody>()},
    {"cpu_virtual_block_table", "cpu_dense, unmodified, fed page_size 1 and each row's valid slots", {}, healthy<VirtualTableBody>()},
};

// The blocked kernel in other arithmetic and under other conventions: healthy by what each declares.
const Spec kVariants[] = {
    {"cpu_split+p_fp32", "P kept in fp32", {.p = Rounding::fp32}, healthy<SplitBody>()},
    {"cpu_split+p_bf16", "P in bf16 whatever q is", {.p = Rounding::bf16}, healthy<SplitBody>()},
    {"cpu_split+p_fp16", "P in fp16 whatever q is", {.p = Rounding::fp16}, healthy<SplitBody>()},
    {"cpu_split+p_e4m3", "P * 256 in e4m3", {.p = Rounding::e4m3, .p_scale = 256}, healthy<SplitBody>()},
    {"cpu_split+sum_rounded", "the row sum adds the rounded P", {.row_sum = RowSum::rounded, .fp8 = Fp8::dequantise}, healthy<SplitBody>()},
    {"cpu_split+p_fp16+sum_rounded",
     "P in fp16, which the row sum adds",
     {.p = Rounding::fp16, .row_sum = RowSum::rounded, .fp8 = Fp8::dequantise},
     healthy<SplitBody>()},
    {"cpu_split+max_ceil", "running maximum rounded up to an integer", {.max_rule = MaxRule::ceil}, healthy<SplitBody>()},
    {"cpu_split+max_lazy", "running maximum moved only when it grows by more than 8", {.max_rule = MaxRule::lazy}, healthy<SplitBody>()},
    {"cpu_split+p_fp16+max_lazy", "lazy maximum with P in fp16", {.p = Rounding::fp16, .max_rule = MaxRule::lazy}, healthy<SplitBody>()},
    {"cpu_split+part_bf16", "partials of splits in bf16", {.part = Rounding::bf16}, healthy<SplitBody>()},
    {"cpu_split+p_fp16+part_bf16", "P in fp16, partials in bf16", {.p = Rounding::fp16, .part = Rounding::bf16}, healthy<SplitBody>()},
    {"cpu_split+dequantise", "fp8_656 dequantised to q's type first", {.fp8 = Fp8::dequantise}, healthy<SplitBody>()},
    {"cpu_split+q_e4m3", "q in e4m3, one power of two a head", {.q = Rounding::e4m3}, healthy<SplitBody>()},
    {"cpu_split+q_e4m3+dequantise", "q in e4m3, fp8_656 dequantised", {.q = Rounding::e4m3, .fp8 = Fp8::dequantise}, healthy<SplitBody>()},
    {"cpu_split+lse_bf16", "lse in bf16", {.lse_dtype = LseType::bf16}, healthy<SplitBody>()},
    {"cpu_split+lse_none", "no lse", {.lse_dtype = LseType::none}, healthy<SplitBody>()},
    {"cpu_split+lse_base_2", "lse in base 2", {.lse_base = LseBase::two}, healthy<SplitBody>()},
    {"cpu_split+sink_in_lse", "lse counts the sink", {.sink_in_lse = true}, healthy<SplitBody>()},
    {"cpu_split+one_split", "never split by its own choice", {.own_splits = OwnSplits::one}, healthy<SplitBody>()},
    // Contracts of kernels in wide use, in their arithmetic. Sources: flash_mla README; flashinfer sparse_mla_sm120; vLLM triton_decode_attention.
    {"cpu_split+like_flashmla",
     "only -1 is invalid; lse of an empty row is +inf",
     {.fp8 = Fp8::dequantise, .empty_lse = EmptyLse::pos_inf, .invalid_index = InvalidIndex::minus_one},
     healthy<SplitBody>()},
    {"cpu_split+like_flashinfer_sm120",
     "q in e4m3, partials in bf16; lse in base 2 with the sink, about -6e28 for an empty row",
     {.q = Rounding::e4m3,
      .p = Rounding::bf16,
      .part = Rounding::bf16,
      .lse_base = LseBase::two,
      .empty_lse = EmptyLse::large_negative,
      .sink_in_lse = true},
     healthy<SplitBody>()},
    {"cpu_split+like_vllm_triton", "lse in bf16", {.fp8 = Fp8::dequantise, .lse_dtype = LseType::bf16}, healthy<SplitBody>()},
    {"cpu_virtual_block_table+tail_only",
     "a row ends at its first invalid entry: nothing is compacted",
     {.padding = Padding::tail_only},
     healthy<VirtualTableBody>()},
};

}  // namespace

std::span<const smla_kernel> kernels() {
  static const std::vector<smla_kernel> all = door(kKernels);
  return all;
}

std::span<const smla_kernel> variants() {
  static const std::vector<smla_kernel> all = door(kVariants);
  return all;
}

}  // namespace smla::cpu
