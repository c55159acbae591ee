// SPDX-License-Identifier: Apache-2.0
// needle and tracer: which row of the cache each query points at, and which row an output came from.
#include "cases/needle.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cases/random.h"
#include "cases/steps.h"

namespace smla {
namespace {

/// Row t's valid entries as slots: those at the edges of tiles first, then the others, each in list order.
std::vector<int32_t> edges_first(const Inputs& in, int64_t t) {
  static constexpr int32_t kEdges[] = {0, 1, 15, 16, 31, 32, 63, 64, 127, 128};
  const int32_t k_t = in.k_t(t);
  const int32_t* list = in.indices.data() + t * in.c.topk;
  std::vector<int32_t> first, rest;
  for (int32_t i = 0; i < k_t; ++i) {
    if (!in.is_valid(list[i])) continue;
    const bool edge = i == k_t - 1 || std::find(std::begin(kEdges), std::end(kEdges), i) != std::end(kEdges);
    (edge ? first : rest).push_back(list[i]);
  }
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

/// The slot whose row has this key, or -1.
int64_t slot_of_key(const Inputs& in, int64_t key) {
  if (in.variant.perturb == "kv" && key >= in.num_slots) key -= in.num_slots;
  if (key < 0 || key >= in.num_slots) return -1;
  if (!in.variant.remap_pages) return key;
  const int64_t source = key / in.c.page_size;
  const auto found = std::find_if(in.page_uses.begin(), in.page_uses.end(), [&](const PageUse& use) { return use.source == source; });
  return found == in.page_uses.end() ? -1 : int64_t{found->page} * in.c.page_size + key % in.c.page_size;
}

}  // namespace

void choose_needles(Inputs& in) {
  in.needle_keys.assign(in.tokens() * in.c.h_q, -1);
  for (int64_t t = 0; t < in.tokens(); ++t) {
    const std::vector<int32_t> slots = edges_first(in, t);
    if (slots.empty()) continue;
    Random random(in.c.seed, Draw::q, static_cast<uint64_t>(t));
    const auto n = static_cast<int64_t>(slots.size());
    for (int64_t h = 0; h < in.c.h_q; ++h) {
      const int64_t i = t * in.c.h_q + h, entry = in.c.values == Values::tracer ? random.below(n) : (in.c.needle0 + i) % n;
      const bool changed = in.variant.perturb == "q" && is_touched(t, in.tokens()) && is_touched(h, in.c.h_q);
      in.needle_keys[i] = slots[(entry + changed) % n];
    }
  }
}

uint32_t unmix32(uint32_t h) {
  h = (h ^ (h >> 16)) * 0x7ed1b41du;  // the inverses of mix32's multipliers, modulo 2^32
  h = (h ^ (h >> 13) ^ (h >> 26)) * 0xa5cb9243u;
  return h ^ (h >> 16);
}

int64_t needle_slot(const Inputs& in, int64_t t, int32_t h, int32_t* multiplicity) {
  const int64_t slot = slot_of_key(in, in.needle_keys.at(in.source_token(t) * in.c.h_q + h));
  const int32_t* list = in.indices.data() + t * in.c.topk;
  const int32_t k_t = in.k_t(t);
  if (multiplicity != nullptr) *multiplicity = static_cast<int32_t>(std::count(list, list + k_t, slot));
  return std::any_of(list, list + k_t, [&](int32_t index) { return in.is_valid(index); }) ? slot : -1;
}

int64_t trace_slot(const Inputs& in, const float* latent) {
  constexpr int32_t kWords = kLatent / 32;
  int64_t slots[kWords];
  for (int32_t g = 0; g < kWords; ++g) {
    uint32_t word = 0;
    bool decided = true;
    for (int32_t bit = 0; bit < 32; ++bit) {
      const float value = latent[32 * g + bit];
      decided &= std::fabs(value) > 0;  // neither zero nor nan
      word |= static_cast<uint32_t>(value < 0) << bit;
    }
    const uint32_t key = unmix32(word) - (static_cast<uint32_t>(g) + in.values.needle_seed) * 0x9e3779b9u;
    slots[g] = decided ? slot_of_key(in, key) : -1;
  }
  for (int32_t g = 0; g + 1 < kWords; ++g)  // a wrong row may be a mixture: two words that agree are no accident
    if (slots[g] >= 0 && std::count(slots + g + 1, slots + kWords, slots[g]) > 0) return slots[g];
  return -1;
}

}  // namespace smla
