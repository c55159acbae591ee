// SPDX-License-Identifier: Apache-2.0
#include "cases/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "cases/needle.h"
#include "cases/pages.h"
#include "cases/pattern.h"
#include "cases/random.h"

namespace smla {
namespace {

/// Where a sensitivity check changes a part of an argument: every second one, the last one included.
bool is_touched(int64_t i, int64_t count) { return i % 2 == (count - 1) % 2; }

int32_t positions_of(const Case& c, const std::vector<int32_t>& lengths, int64_t t) {
  const int64_t n = int64_t{lengths[t / c.s_q]} - c.s_q + t % c.s_q + 1;
  return static_cast<int32_t>(std::max<int64_t>(0, n));
}

// ---- The lists of the case itself.

/// Fills [k_t, topk) of a row's list with slots that look valid: its own keys' and others', some of them of pages that hold nothing.
void fill_stale_tail(const Inputs& in, const PageMap& pages, int64_t t, int32_t n, int32_t k_t, Random& random, int32_t* list) {
  const bool anywhere = in.c.pattern != Pattern::far;  // far: the rest of the pool is not there
  for (int32_t i = k_t; i < in.c.topk; ++i) {
    if (anywhere && (n == 0 || i % 2 == 0)) list[i] = static_cast<int32_t>(random.below(in.num_slots));
    else if (n > 0) {
      const int64_t position = random.below(n);
      list[i] = static_cast<int32_t>(int64_t{pages.page(t / in.c.s_q, static_cast<int32_t>(position / in.c.page_size))} * in.c.page_size +
                                     position % in.c.page_size);
    }
  }
}

int32_t slot_of_entry(const Inputs& in, const PageMap& pages, int64_t request, int32_t entry) {
  const int32_t slots = static_cast<int32_t>(in.num_slots);
  const int32_t out_of_range[kOutOfRangeKinds] = {INT_MIN, -2, slots, slots + 1, INT_MAX};
  if (entry == kNoKey) return -1;
  if (entry < 0) return out_of_range[kOutOfRange - entry];
  return pages.page(request, entry / in.c.page_size) * in.c.page_size + entry % in.c.page_size;
}

void make_lists(Inputs& in, const PageMap& pages) {
  const Case& c = in.c;
  Distinct distinct;
  in.indices.assign(c.tokens() * c.topk, kNoKey);
  if (c.topk_length) in.topk_length.resize(c.tokens());
  for (int64_t t = 0; t < c.tokens(); ++t) {
    Random random(c.seed, Draw::pattern, static_cast<uint64_t>(t));
    const int32_t n = positions_of(c, in.seq_lens, t);
    int32_t k_t = c.topk;
    if (c.topk_length) {
      k_t = choose_k_t(c, t, n);
      if (c.pattern == Pattern::all_invalid && is_left_empty(t, c.tokens()) && random.one_in(2)) k_t = 0;
      in.topk_length[t] = k_t;
    }
    int32_t* list = in.indices.data() + t * c.topk;
    select(c.pattern, Row{t, c.tokens(), n, k_t, c.page_size, list, random, distinct});
    for (int32_t i = 0; i < k_t; ++i) list[i] = slot_of_entry(in, pages, t / c.s_q, list[i]);
    if (c.pattern == Pattern::stale_tail || random.one_in(2)) fill_stale_tail(in, pages, t, n, k_t, random, list);
  }
}

// ---- What a variant makes of them.

/// Entries [0, k) are those that may be permuted among each other: all of the row's, or the valid ones where those come first.
int32_t permutable(const Inputs& in, int64_t t) {
  const int32_t* list = in.indices.data() + t * in.c.topk;
  const auto is_key = [&](int32_t index) { return in.is_valid(index); };
  const int32_t* end = list + in.k_t(t);
  const int32_t* first_invalid = std::find_if_not(list, end, is_key);
  return static_cast<int32_t>((std::any_of(first_invalid, end, is_key) ? end : first_invalid) - list);
}

void permute_lists(Inputs& in) {
  for (int64_t t = 0; t < in.tokens(); ++t) {
    Random random(in.c.seed, Draw::pattern, static_cast<uint64_t>(2 * in.tokens() + t));
    random.shuffle(in.indices.data() + t * in.c.topk, permutable(in, t));
  }
}

/// Puts `more` entries of -1 at random places before K_t; the lists grow by so much.
void insert_invalid(Inputs& in) {
  const int32_t old_topk = in.c.topk, more = std::max(1, old_topk / 16);
  std::vector<int32_t> grown;
  grown.reserve(in.tokens() * (old_topk + more));
  for (int64_t t = 0; t < in.tokens(); ++t) {
    Random random(in.c.seed, Draw::pattern, static_cast<uint64_t>(3 * in.tokens() + t));
    const int32_t* list = in.indices.data() + t * old_topk;
    const int32_t k_t = in.k_t(t);
    int32_t left = more;
    for (int32_t i = 0; i < k_t; ++i) {
      for (; left > 0 && random.below(k_t - i + left) < left; --left) grown.push_back(-1);
      grown.push_back(list[i]);
    }
    grown.insert(grown.end(), left, -1);
    grown.insert(grown.end(), list + k_t, list + old_topk);
  }
  in.indices = std::move(grown);
  in.c.topk += more;
  for (int32_t& length : in.topk_length) length += more;
}

/// Keeps the valid entries [first, last) of row t's, in fractions of 1 / 2; the others become -1.
void keep_half(Inputs& in, int64_t t, int half) {
  int32_t* list = in.indices.data() + t * in.c.topk;
  const int32_t k_t = in.k_t(t);
  const auto valid = static_cast<int32_t>(std::count_if(list, list + k_t, [&](int32_t index) { return in.is_valid(index); }));
  for (int32_t i = 0, seen = 0; i < k_t; ++i) {
    if (!in.is_valid(list[i])) continue;
    const bool first_half = seen++ < valid / 2;
    if (first_half != (half == 1)) list[i] = -1;
  }
}

void perturb_lists(Inputs& in) {
  for (int64_t t = 0; t < in.tokens(); ++t) {
    if (!is_touched(t, in.tokens())) continue;
    if (in.variant.perturb == "indices") keep_half(in, t, 1);
    if (in.variant.perturb == "topk_length") in.topk_length[t] /= 2;
  }
}

/// The content of every page in use moves to another one. (What stands behind K_t and names no page in use stays.)
void remap_pages(Inputs& in, const PageMap& from, const PageMap& to) {
  std::unordered_map<int32_t, int32_t> target, source;
  for (size_t i = 0; i < from.physical.size(); ++i) target[from.physical[i]] = to.physical[i], source[to.physical[i]] = from.physical[i];
  for (PageUse& use : in.page_uses) use.source = source.at(use.page);
  for (int32_t& index : in.indices) {
    if (!in.is_valid(index)) continue;
    if (const auto moved = target.find(index / in.c.page_size); moved != target.end())
      index = moved->second * in.c.page_size + index % in.c.page_size;
  }
}

/// Reverses the order of `count` requests' blocks.
template <class T>
void reverse_blocks(std::vector<T>& items, int64_t count) {
  const auto block = static_cast<int64_t>(items.size()) / count;
  for (int64_t r = 0; r < count / 2; ++r)
    std::swap_ranges(items.begin() + r * block, items.begin() + (r + 1) * block, items.begin() + (count - 1 - r) * block);
}

void reverse_batch(Inputs& in) {
  const int64_t b = in.c.b;
  reverse_blocks(in.indices, b);
  reverse_blocks(in.seq_lens, b);
  reverse_blocks(in.block_table, b);
  if (!in.topk_length.empty()) reverse_blocks(in.topk_length, b);
  for (PageUse& use : in.page_uses) use.owner = static_cast<int32_t>(b - 1 - use.owner);
}

// ---- The other small tensors.

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

/// Finite sinks are near the log of the number of keys, so that they matter; multiples of 1/16. needle: not above 0, so that the needle keeps all
/// weight.
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
    const double near = is_needle(in.values) ? -u8 : ln_k - 2 + u8;
    const auto finite = static_cast<float>(std::floor(near * 16) / 16);
    const int64_t kind = (first + h) % 4;
    const bool mixed = c.sink == SinkKind::mixed;
    in.sink[h] = c.sink == SinkKind::pinf || (mixed && kind == 1) ? inf : c.sink == SinkKind::ninf || (mixed && kind == 2) ? -inf : finite;
  }
  if (in.variant.perturb == "sink")
    for (int32_t h = 0; h < c.h_q; ++h)
      if (is_touched(h, c.h_q)) in.sink[h] = std::isinf(in.sink[h]) ? 0.0f : in.sink[h] + 1;
}

// ---- What the lists turned out to be. Values of the flags are those of kernels/api/smla_kernel.h.

enum : int32_t { kDenseSet = 1, kTailPadded = 2, kDuplicates = 4, kTablePerQuery = 8, kScalesPow2 = 16, kOutOfRangeEntries = 32 };

class Bitmap {
 public:
  explicit Bitmap(int64_t n) : words_((n + 63) / 64) {}
  /// Sets bit i; returns whether it was set.
  bool test_and_set(int64_t i) {
    const uint64_t bit = uint64_t{1} << (i & 63);
    const bool was = (words_[i >> 6] & bit) != 0;
    words_[i >> 6] |= bit;
    return was;
  }
  void clear(int64_t i) { words_[i >> 6] &= ~(uint64_t{1} << (i & 63)); }
  template <class F>
  void for_each(F f) const {
    for (size_t w = 0; w < words_.size(); ++w)
      for (uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) f(static_cast<int64_t>(w * 64) + __builtin_ctzll(bits));
  }

 private:
  std::vector<uint64_t> words_;
};

void describe(Inputs& in) {
  bool dense_set = true, tail_padded = true, duplicates = false, out_of_range = false;
  Bitmap any_row(in.num_slots), this_row(in.num_slots);
  struct Seen {
    int32_t valid, k_t;
  };
  std::vector<Seen> rows(in.tokens());
  for (int64_t t = 0; t < in.tokens(); ++t) {
    const int32_t* list = in.indices.data() + t * in.c.topk;
    const int32_t k_t = in.k_t(t);
    int32_t valid = 0, distinct = 0, first_invalid = k_t;
    for (int32_t i = 0; i < k_t; ++i) {
      if (!in.is_valid(list[i])) {
        first_invalid = std::min(first_invalid, i);
        out_of_range |= list[i] != -1;
        continue;
      }
      ++valid;
      tail_padded &= i < first_invalid;
      distinct += !this_row.test_and_set(list[i]);
      any_row.test_and_set(list[i]);
    }
    for (int32_t i = 0; i < k_t; ++i)
      if (in.is_valid(list[i])) this_row.clear(list[i]);
    duplicates |= distinct < valid;
    dense_set &= distinct == valid && valid == positions_of(in.c, in.seq_lens, t);
    in.valid_keys += valid;
    rows[t] = {valid, k_t};
  }
  any_row.for_each([&](int64_t slot) { in.selected.push_back(static_cast<int32_t>(slot)); });

  in.flags = (dense_set ? kDenseSet : 0) | (tail_padded ? kTailPadded : 0) | (duplicates ? kDuplicates : 0) |
             (out_of_range ? kOutOfRangeEntries : 0) | (in.c.table == TableKind::query ? kTablePerQuery : 0) |
             (in.c.scales == Scales::pow2 ? kScalesPow2 : 0);

  // Of every kind of row that loops go wrong at, the first, a middle and the last.
  in.special_rows = {0, in.tokens() - 1};
  const auto keep_some = [&](auto is_kind) {
    std::vector<int64_t> found;
    for (int64_t t = 0; t < in.tokens(); ++t)
      if (is_kind(rows[t])) found.push_back(t);
    if (!found.empty()) in.special_rows.insert(in.special_rows.end(), {found.front(), found[found.size() / 2], found.back()});
  };
  for (const int32_t edge : {0, 1, kTile - 1, kTile, kTile + 1, in.c.topk - 1, in.c.topk}) {
    keep_some([&](const Seen& row) { return row.valid == edge; });
    keep_some([&](const Seen& row) { return row.k_t == edge && row.valid != edge; });
  }
  std::sort(in.special_rows.begin(), in.special_rows.end());
  in.special_rows.erase(std::unique(in.special_rows.begin(), in.special_rows.end()), in.special_rows.end());
}

/// 16-bit q must stay finite whatever family and variant multiply it with.
void check_q_range(const Inputs& in) {
  if (in.c.q_dtype != FloatType::fp16) return;
  double largest = is_needle(in.values) ? std::ldexp(1.875, in.values.needle_log2) : 255.0 * static_cast<double>(in.values.q_factor);
  if (in.values.family == Values::large_logits) largest *= 0x1p11;
  if (std::ldexp(largest, in.values.q_log2) >= 65504)
    throw UsageError(fmt::format("sm_scale={}: q of values={} passes the range of fp16", in.c.sm_scale, name_of(in.c.values)));
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

  // From here on only the variant speaks. num_slots is fixed, so what is invalid stays invalid.
  if (variant.half != 0)
    for (int64_t t = 0; t < in.tokens(); ++t) keep_half(in, t, variant.half);
  perturb_lists(in);
  if (variant.permute_indices) permute_lists(in);
  if (variant.insert_invalid) insert_invalid(in);
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

void kv_row(const Inputs& in, int64_t slot, uint8_t* row) {
  if (in.c.kv_format > KvFormat::fp8_656) throw UsageError(fmt::format("kv_format={}: known, not judged yet", name_of(in.c.kv_format)));
  const int32_t position = is_max_family(in.values.family) ? in.position(slot) : 0;  // only they ask
  write_kv_row(in.values, in.content_key(slot), position, row);
}

void q_row(const Inputs& in, int64_t t, int32_t h, uint16_t* row) {
  const int64_t index = in.source_token(t) * in.c.h_q + h;
  const bool changed = in.variant.perturb == "q" && is_touched(t, in.tokens()) && is_touched(h, in.c.h_q);
  const uint32_t needle_key = in.needle_keys.empty() ? 0 : static_cast<uint32_t>(in.needle_keys[index]);
  write_q_row(in.values, index + (changed ? in.tokens() * in.c.h_q : 0), needle_key, row);
}

}  // namespace smla
