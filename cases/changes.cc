// SPDX-License-Identifier: Apache-2.0
// What a variant makes of the lists of a case. num_slots is fixed, so what is invalid stays invalid.
#include <algorithm>
#include <unordered_map>

#include "cases/random.h"
#include "cases/steps.h"

namespace smla {
namespace {

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

/// Keeps the first (1) or the second (2) half of row t's valid entries; the others become -1.
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

/// Reverses the order of `count` requests' blocks.
template <class T>
void reverse_blocks(std::vector<T>& items, int64_t count) {
  const auto block = static_cast<int64_t>(items.size()) / count;
  for (int64_t r = 0; r < count / 2; ++r)
    std::swap_ranges(items.begin() + r * block, items.begin() + (r + 1) * block, items.begin() + (count - 1 - r) * block);
}

}  // namespace

void change_lists(Inputs& in) {
  if (in.variant.half != 0)
    for (int64_t t = 0; t < in.tokens(); ++t) keep_half(in, t, in.variant.half);
  perturb_lists(in);
  if (in.variant.permute_indices) permute_lists(in);
  if (in.variant.insert_invalid) insert_invalid(in);
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

void reverse_batch(Inputs& in) {
  const int64_t b = in.c.b;
  reverse_blocks(in.indices, b);
  reverse_blocks(in.seq_lens, b);
  reverse_blocks(in.block_table, b);
  if (!in.topk_length.empty()) reverse_blocks(in.topk_length, b);
  for (PageUse& use : in.page_uses) use.owner = static_cast<int32_t>(b - 1 - use.owner);
}

}  // namespace smla
