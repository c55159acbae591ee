// SPDX-License-Identifier: Apache-2.0
#include "cases/pairwise.h"

#include <fmt/format.h>

#include <cmath>

#include "cases/kv_format.h"

namespace smla::pairwise {
namespace {

Axis patterns() {
  Axis axis{"pattern", {}};
  for (const std::string_view name : Names<Pattern>::kAll)
    if (name != name_of(Pattern::file)) axis.values.push_back(fmt::format("pattern={}", name));
  return axis;
}

Axis values() {
  Axis axis{"values", {}};
  for (const std::string_view name : Names<Values>::kAll) axis.values.push_back(fmt::format("values={}", name));
  return axis;
}

/// An axis of one key.
Axis key(const std::string& name, const std::vector<std::string>& words) {
  Axis axis{name, {}};
  for (const std::string& word : words) axis.values.push_back(name + "=" + word);
  return axis;
}

}  // namespace

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all{
      {"batch",
       {"decode b=1 s_q=1", "decode b=3 s_q=1", "decode b=2 s_q=2", "decode b=3 s_q=3", "decode b=2 s_q=4", "decode b=9 s_q=1", "decode b=33 s_q=1",
        "decode b=321 s_q=1", "prefill b=1 s_q=40", "prefill b=2 s_q=17"}},
      patterns(),
      values(),
      {"format",
       {"kv_format=bf16", "q_dtype=fp16 kv_format=fp16", "kv_format=fp8_656", "kv_format=fp8_656 scales=pow2", "q_dtype=fp16 kv_format=fp8_656",
        "q_dtype=fp16 kv_format=fp8_656 scales=pow2"}},
      key("h_q", {"1", "5", "8", "12", "16", "32", "64", "96", "128"}),
      key("topk", {"64", "100", "128", "512", "576", "1024", "2048", "2176"}),
      key("s_kv", {"50", "300", "1000", "5000"}),
      key("page_size", {"1", "2", "16", "32", "53", "61", "64", "69", "128", "256"}),
      {"page_gap", {"gap=0", "gap=5"}},
      key("table", {"request", "query"}),
      key("lens", {"full", "mixed"}),
      key("topk_length", {"0", "1"}),
      key("sink", {"none", "finite", "pinf", "ninf", "mixed"}),
      key("num_splits", {"0", "1", "2", "4", "8", "16", "32"}),
      key("sm_scale", {"0.0625", "0.07216878", "0.101"}),
      key("d_qk", {"576", "512"}),
  };
  return all;
}

std::optional<Case> spell(const Choice& choice) {
  std::string line;
  int gap = 0;
  for (size_t a = 0; a < choice.size(); ++a) {
    const std::string& words = axes()[a].values[choice[a]];
    if (axes()[a].name == "page_gap") gap = words == "gap=5" ? 5 : 0;
    else line += words + " ";
  }
  try {
    Case c = parse_line(line);
    c.page_stride_rows = c.page_size + gap;
    validate(c);
    return c;
  } catch (const UsageError&) { return std::nullopt; }
}

std::optional<Choice> read(const Case& c) {
  const auto fits = [&](const Axis& axis, const std::string& words) {
    if (axis.name == "page_gap") return c.page_stride_rows == c.page_size + (words == "gap=5" ? 5 : 0);
    if (axis.name == "batch") return words == fmt::format("{} b={} s_q={}", name_of(c.pass_kind), c.b, c.s_q);
    if (axis.name == "format") {
      std::string said = c.q_dtype == FloatType::fp16 ? "q_dtype=fp16 " : "";
      said += fmt::format("kv_format={}", name_of(c.kv_format));
      return words == said + (c.scales == Scales::pow2 ? " scales=pow2" : "");
    }
    return words == axis.name + "=" + case_value(c, axis.name);
  };
  Choice choice;
  for (const Axis& axis : axes()) {
    int found = -1;
    for (size_t v = 0; v < axis.values.size(); ++v)
      if (fits(axis, axis.values[v])) found = static_cast<int>(v);
    if (found < 0) return std::nullopt;
    choice.push_back(found);
  }
  return choice;
}

double work(const Case& c) { return static_cast<double>(c.tokens()) * c.h_q * c.topk; }

double pool_bytes(const Case& c) {
  if (c.pattern == Pattern::far) return 0;  // not backed
  return 1.125 * c.b * std::ceil(static_cast<double>(c.s_kv) / c.page_size) * c.page_stride_rows *
         static_cast<double>(row_bytes(c.kv_format, c.d_qk));
}

bool fits_cpu(const Case& c) { return work(c) <= 0x1p18 && pool_bytes(c) <= 0x1p27; }
bool fits_gpu(const Case& c) { return work(c) <= 0x1p23 && pool_bytes(c) <= 0x1p32; }

}  // namespace smla::pairwise
