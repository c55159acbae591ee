// SPDX-License-Identifier: Apache-2.0
// What a case may not say: contradictions, named by their keys. What a kernel declines is no business of this file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cases/case.h"
#include "cases/values.h"

namespace smla {
namespace {

template <class... Args>
void require(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) throw UsageError(fmt::format(text, std::forward<Args>(args)...));
}

void check_shape(const Case& c) {
  const std::pair<std::string_view, int32_t> positive[] = {{"b", c.b},       {"s_q", c.s_q},   {"h_q", c.h_q},
                                                           {"s_kv", c.s_kv}, {"topk", c.topk}, {"page_size", c.page_size}};
  for (const auto& [key, value] : positive) require(value > 0, "{}: {} is not positive", key, value);
  require(c.page_stride_rows >= c.page_size, "page_stride_rows: {} is less than page_size={}", c.page_stride_rows, c.page_size);
  require(c.num_splits >= 0, "num_splits: {} is negative", c.num_splits);
  require(std::isfinite(c.sm_scale) && c.sm_scale > 0, "sm_scale: {} is not a positive number", c.sm_scale);
  // So that no count of bytes or operations passes 63 bits. Whether a machine can hold it is another question (inputs_bytes, tensor_bytes).
  const double pages = static_cast<double>(c.b) * std::ceil(static_cast<double>(c.s_kv) / c.page_size) * 9 / 8 + 2;
  const double tokens = static_cast<double>(c.tokens());
  require(pages * c.page_size < 0x1p31, "b={} s_kv={} page_size={}: more slots than an int32 index can name", c.b, c.s_kv, c.page_size);
  require(pages * c.page_stride_rows < 0x1p48, "page_stride_rows: {} in each of {:.0f} pages are too many", c.page_stride_rows, pages);
  require(tokens < 0x1p31, "b={} s_q={}: more query tokens than an int32 can count", c.b, c.s_q);
  require(c.topk <= 1 << 30, "topk: {} is more than 2^30", c.topk);
  require(tokens * c.topk < 0x1p40, "b={} s_q={} topk={}: too many indices", c.b, c.s_q, c.topk);
  require(tokens * c.topk * c.h_q < 0x1p50, "b={} s_q={} topk={} h_q={}: too many scores", c.b, c.s_q, c.topk, c.h_q);
}

void check_format(const Case& c) {
  const bool is_16_bit = c.kv_format == KvFormat::bf16 || c.kv_format == KvFormat::fp16;
  const auto format = name_of(c.kv_format), q = name_of(c.q_dtype);
  require(!is_16_bit || format == q, "kv_format={}: a 16-bit cache has q's type, which is q_dtype={}", format, q);
  require(!is_16_bit || c.rope_dtype == c.q_dtype, "rope_dtype={}: kv_format={} has no RoPE part of its own", name_of(c.rope_dtype), format);
  require(c.kv_format == KvFormat::fp8_656 || c.scales == Scales::arbitrary, "scales=pow2: kv_format={} has no scales to choose", format);
  require(c.d_v == 512, "d_v: {} is not 512", c.d_v);
  require(c.d_qk == 576 || c.d_qk == 512, "d_qk: {} is neither 576 nor 512", c.d_qk);
  require(c.kv_format != KvFormat::fp8_656 || c.d_qk == 576, "d_qk={}: fp8_656 rows have 576 values", c.d_qk);
}

void check_pattern(const Case& c) {
  const auto pattern = name_of(c.pattern);
  switch (c.pattern) {
    case Pattern::dense:
      require(c.topk >= c.s_kv, "pattern=dense: topk={} is less than s_kv={}", c.topk, c.s_kv);
      break;
    case Pattern::short_context:
      require(c.s_kv < c.topk, "pattern=short_context: s_kv={} is not less than topk={}", c.s_kv, c.topk);
      break;
    case Pattern::stale_tail:
      require(c.topk_length, "pattern=stale_tail: needs topk_length=1");
      break;
    case Pattern::shared_prefix:
      require(c.b >= 2, "pattern=shared_prefix: b=1 has nobody to share with");
      break;
    case Pattern::leading_invalid:
      require(c.topk > 64, "pattern=leading_invalid: topk={} leaves nothing behind a leading tile of 64", c.topk);
      break;
    case Pattern::file:
      require(!c.pattern_file.empty(), "pattern=file: names no file: pattern=file:PATH.npy");
      require(std::all_of(c.pattern_file.begin(), c.pattern_file.end(), [](char x) { return x > ' ' && x < 127 && x != '\'' && x != ','; }),
              "pattern=file:{}: a path in a case line is ASCII without spaces, commas and quotes", c.pattern_file);
      require(c.lens == Lens::full, "pattern=file: lens={}, but the file's positions are of full contexts", name_of(c.lens));
      break;
    default:
      break;
  }
  require(!is_max_family(c.values) || c.pattern == Pattern::contiguous || c.pattern == Pattern::dense || c.pattern == Pattern::sorted,
          "values={}: rises along the list only with pattern=contiguous, dense or sorted, not {}", name_of(c.values), pattern);
}

void check_values(const Case& c) {
  const auto values = name_of(c.values);
  const bool codes_are_exact = c.values == Values::needle || c.values == Values::tracer || c.values == Values::exact_mean;
  require(!codes_are_exact || c.kv_format != KvFormat::fp8_656 || c.scales == Scales::pow2, "values={}: kv_format=fp8_656 needs scales=pow2", values);
  require(c.values != Values::exact_mean || c.sink == SinkKind::none, "values=exact_mean: sink={}, but the mean is over keys only", name_of(c.sink));
  require(!is_max_family(c.values) || c.d_qk == 576, "values={}: speaks through channel 512, which d_qk={} lacks", values, c.d_qk);
  require(c.needle0 >= 0, "needle0: {} is negative", c.needle0);
  require(c.needle0 == 0 || c.values == Values::needle, "needle0={}: only with values=needle", c.needle0);
}

}  // namespace

void validate(const Case& c) {
  check_shape(c);
  check_format(c);
  check_pattern(c);
  check_values(c);
}

}  // namespace smla
