// SPDX-License-Identifier: Apache-2.0
#include "cases/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cases/random.h"
#include "cases/steps.h"

namespace smla {
namespace {

/// Wider than needed; behind the request's pages stands garbage.
void make_block_table(Inputs& in, const PageMap& pages) {
  in.max_pages = pages.pages_per_request + 3;
  in.table_rows = static_cast<int32_t>(in.c.table == TableKind::query ? in.tokens() : in.c.b);
  Random random(in.c.seed, Draw::pages, 3);
  in.block_table.resize(int64_t{in.table_rows} * in.max_pages);
  for (int64_t row = 0; row < in.table_rows; ++row)
    for (int32_t l = 0; l < in.max_pages; ++l) {
      const int64_t request = in.c.table == TableKind::query ? row / in.c.s_q : row;
      const int32_t page = l < pages.pages_per_request ? pages.page(request, l) : -1;
      in.block_table[row * in.max_pages + l] = page >= 0 ? page : static_cast<int32_t>(random.next());
    }
}

/// Finite sinks are near the log of the number of keys, so that they matter; multiples of 1/16. needle: at most 0, so that its key keeps all weight.
void make_sink(Inputs& in) {
  const Case& c = in.c;
  if (c.sink == SinkKind::none) return;
  Random random(c.seed, Draw::sink, 0);
  const int64_t first = random.below(4);
  const double ln_k = std::log(static_cast<double>(std::min(c.topk, c.s_kv)));
  const float inf = std::numeric_limits<float>::infinity();
  in.sink.resize(c.h_q);
  for (int32_t h = 0; h < c.h_q; ++h) {
    const double u8 = 8.0 * static_cast<double>(random.next() >> 11) * 0x1p-53;
    const double wanted = is_needle(in.values) ? -u8 : ln_k - 2 + u8;
    const auto finite = static_cast<float>(std::floor(wanted * 16) / 16);
    const int64_t kind = (first + h) % 4;
    const bool mixed = c.sink == SinkKind::mixed;
    in.sink[h] = c.sink == SinkKind::pinf || (mixed && kind == 1) ? inf : c.sink == SinkKind::ninf || (mixed && kind == 2) ? -inf : finite;
  }
  if (in.variant.perturb == "sink")
    for (int32_t h = 0; h < c.h_q; ++h)
      if (is_touched(h, c.h_q)) in.sink[h] = std::isinf(in.sink[h]) ? 0.0f : in.sink[h] + 1;
}

/// 16-bit q must stay finite whatever family and variant multiply it with.
void check_q_range(const Inputs& in) {
  const bool fp16 = in.c.q_dtype == FloatType::fp16;
  double largest = is_needle(in.values) ? std::ldexp(1.875, in.values.needle_log2) : 255.0 * static_cast<double>(in.values.q_factor);
  if (in.values.family == Values::large_logits) largest *= 0x1p11;
  if (std::ldexp(largest, in.values.q_log2) >= (fp16 ? 65504 : 0x1.fep127))
    throw UsageError(fmt::format("sm_scale={}: q of values={} passes the range of {}", in.c.sm_scale, name_of(in.c.values), fp16 ? "fp16" : "bf16"));
}

}  // namespace

int32_t Inputs::k_t(int64_t t) const { return topk_length.empty() ? c.topk : std::clamp(topk_length[t], 0, c.topk); }

int64_t Inputs::source_token(int64_t t) const { return variant.permute_batch ? (c.b - 1 - t / c.s_q) * c.s_q + t % c.s_q : t; }

const PageUse* Inputs::page_use(int64_t page) const {
  const auto found = std::lower_bound(page_uses.begin(), page_uses.end(), page, [](const PageUse& use, int64_t wanted) { return use.page < wanted; });
  return found != page_uses.end() && found->page == page ? &*found : nullptr;
}

int64_t Inputs::content_key(int64_t slot) const {
  const bool changes = variant.perturb == "kv";
  if (!variant.remap_pages && !changes) return slot;
  const PageUse* use = page_use(slot / c.page_size);
  if (use == nullptr) return slot;
  return int64_t{use->source} * c.page_size + slot % c.page_size + (changes && is_touched(use->owner, c.b) ? num_slots : 0);
}

int32_t Inputs::position(int64_t slot) const {
  const PageUse* use = page_use(slot / c.page_size);
  return (use == nullptr ? 0 : use->logical) * c.page_size + static_cast<int32_t>(slot % c.page_size);
}

Inputs make_inputs(const Case& asked, const Variant& variant) {
  validate(asked);
  const auto can_change = perturbations(asked);
  if (!variant.perturb.empty() && std::find(can_change.begin(), can_change.end(), variant.perturb) == can_change.end())
    throw UsageError(fmt::format("variant perturb_{}: this case has no such argument to change", variant.perturb));
  Inputs in;
  in.c = asked;
  in.variant = variant;
  if (variant.second) ++in.c.seed;
  in.values = value_spec(in.c);
  in.values.q_log2 = variant.scale_q_log2;
  check_q_range(in);
  in.seq_lens = request_lengths(in.c);
  const PageMap pages = make_pages(in.c, in.seq_lens);
  in.num_pages = pages.num_pages;
  in.num_slots = in.num_pages * in.c.page_size;
  in.row_bytes = row_bytes(in.c.kv_format, in.c.d_qk);
  in.page_stride_bytes = in.c.page_stride_rows * in.row_bytes;
  make_lists(in, pages);
  if (is_needle(in.values)) choose_needles(in);
  make_sink(in);

  change_lists(in);
  const PageMap moved = variant.remap_pages ? make_pages(in.c, in.seq_lens, true) : PageMap{};
  const PageMap& final_pages = variant.remap_pages ? moved : pages;
  in.page_uses = final_pages.uses;
  if (variant.remap_pages) remap_pages(in, pages, moved);
  make_block_table(in, final_pages);
  if (variant.permute_batch) reverse_batch(in);
  if (variant.num_splits >= 0) in.c.num_splits = variant.num_splits;
  in.c.sm_scale = std::ldexp(in.c.sm_scale, -variant.scale_q_log2);
  if (variant.perturb == "sm_scale") in.c.sm_scale *= 0.75f;
  describe(in);
  return in;
}

KvSource kv_source(const Inputs& in, int64_t slot) {
  if (in.c.kv_format > KvFormat::fp8_656) throw UsageError(fmt::format("kv_format={}: known, not judged yet", name_of(in.c.kv_format)));
  return {in.content_key(slot), is_max_family(in.values.family) ? in.position(slot) : 0};
}

QSource q_source(const Inputs& in, int64_t t, int32_t h) {
  const int64_t index = in.source_token(t) * in.c.h_q + h;
  const bool changed = in.variant.perturb == "q" && is_touched(t, in.tokens()) && is_touched(h, in.c.h_q);
  const uint32_t needle_key = in.needle_keys.empty() ? 0 : static_cast<uint32_t>(in.needle_keys[index]);
  return {index + (changed ? in.tokens() * in.c.h_q : 0), needle_key};
}

void kv_row(const Inputs& in, int64_t slot, uint8_t* row) {
  if (in.given.kv != nullptr) {
    const uint8_t* page = in.given.kv + slot / in.c.page_size * in.page_stride_bytes;
    std::memcpy(row, page + slot % in.c.page_size * in.row_bytes, static_cast<size_t>(in.row_bytes));
    return;
  }
  const KvSource source = kv_source(in, slot);
  write_kv_row(in.values, source.key, source.position, row);
}

void q_row(const Inputs& in, int64_t t, int32_t h, uint16_t* row) {
  if (in.given.q != nullptr) {
    const size_t bytes = static_cast<size_t>(in.c.d_qk) * sizeof(uint16_t);
    std::memcpy(row, in.given.q + static_cast<size_t>(t * in.c.h_q + h) * bytes, bytes);
    return;
  }
  const QSource source = q_source(in, t, h);
  write_q_row(in.values, source.row, source.needle_key, row);
}

}  // namespace smla
