// SPDX-License-Identifier: Apache-2.0
// needle and tracer: which row of the cache each query points at, and which row an output came from.
#include "cases/needle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <vector>

#include "cases/random.h"
#include "cases/steps.h"

namespace smla {
namespace {

/// Positions of a list in the order in which they are worth asking, whatever stands there: both sides of every border of 16 entries, the coarsest
/// first (where splits, pages and tiles begin and end), then the others as the seed has it.
std::vector<int32_t> worth_asking(const Case& c) {
  std::vector<int32_t> borders, order, others;
  for (int32_t border = 16; border < c.topk; border += 16) borders.push_back(border);
  std::stable_sort(borders.begin(), borders.end(), [](uint32_t a, uint32_t b) { return std::countr_zero(a) > std::countr_zero(b); });
  for (int32_t border : borders) order.insert(order.end(), {border, border - 1});
  for (int32_t position = 0; position < c.topk; ++position)
    if ((position % 16 != 0 || position == 0) && (position % 16 != 15 || position == c.topk - 1)) others.push_back(position);
  Random(c.seed, Draw::q, 0).shuffle(others.data(), std::ssize(others));
  order.insert(order.end(), others.begin(), others.end());
  return order;
}

/// Deals the entries of the lists out to the queries, row after row, so that few rows ask what kernels lose, and many ask everything.
class Dealer {
 public:
  explicit Dealer(const Inputs& in) : in_(in), order_(worth_asking(in.c)), asked_(in.c.topk), begun_at_(in.c.topk), ended_at_(in.c.topk) {}

  /// Row t, whose valid entries stand at these positions: at least one.
  void begin(int64_t t, const std::vector<int32_t>& valid) {
    const int32_t* list = in_.indices.data() + t * in_.c.topk;
    first_ = valid.front();
    last_ = valid.back();
    std::vector<bool> is_valid(in_.c.topk);
    for (int32_t position : valid) is_valid[position] = true;
    row_ = {last_, first_};
    for (int32_t p = 2; p < in_.c.topk; ++p)  // where a run of slots first goes on in another page
      if (is_valid[p - 2] && is_valid[p - 1] && is_valid[p] && list[p - 2] + 1 == list[p - 1] && list[p] % in_.c.page_size == 0 &&
          list[p - 1] % in_.c.page_size == in_.c.page_size - 1 && in_.c.page_size > 1) {
        row_.insert(row_.end(), {p, p - 1});
        break;
      }
    std::copy_if(order_.begin(), order_.end(), std::back_inserter(row_), [&](int32_t position) { return is_valid[position]; });
    next_ = 0;
  }

  /// Another position: the row's end or beginning, if no row yet asked its own there and `edges` allows it; else what nobody asked; else in turn.
  int32_t deal(bool edges) {
    if (edges && !ended_at_[last_]) return take(last_);
    if (edges && !begun_at_[first_]) return take(first_);
    while (next_ < row_.size() && asked_[row_[next_]]) ++next_;
    return take(next_ < row_.size() ? row_[next_] : row_[again_++ % row_.size()]);
  }

 private:
  int32_t take(int32_t position) {
    asked_[position] = true;
    if (position == first_) begun_at_[position] = true;
    if (position == last_) ended_at_[position] = true;
    return position;
  }

  const Inputs& in_;
  const std::vector<int32_t> order_;
  std::vector<bool> asked_, begun_at_, ended_at_;
  std::vector<int32_t> row_;  // its positions in the order of asking
  int32_t first_ = 0, last_ = 0;
  size_t next_ = 0, again_ = 0;
};

std::vector<int32_t> valid_positions(const Inputs& in, int64_t t) {
  std::vector<int32_t> valid;
  for (int32_t i = 0; i < in.k_t(t); ++i)
    if (in.is_valid(in.indices[t * in.c.topk + i])) valid.push_back(i);
  return valid;
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
  Dealer dealer(in);
  int64_t passed_over = in.c.needle0;
  for (int64_t t = 0; t < in.tokens(); ++t) {
    const std::vector<int32_t> valid = valid_positions(in, t);
    if (valid.empty()) continue;
    const auto n = static_cast<int64_t>(valid.size());
    Random random(in.c.seed, Draw::q, static_cast<uint64_t>(t));
    if (in.c.values == Values::needle) dealer.begin(t, valid);
    for (passed_over %= n; passed_over > 0; --passed_over) dealer.deal(false);
    for (int64_t h = 0; h < in.c.h_q; ++h) {
      const int64_t i = t * in.c.h_q + h;  // every second query may ask for an edge once more, so that others stay for the rest
      int32_t position = in.c.values == Values::tracer ? valid[random.below(n)] : dealer.deal(i % 2 == 0);
      if (in.variant.perturb == "q" && is_touched(t, in.tokens()) && is_touched(h, in.c.h_q))
        position = valid[(std::lower_bound(valid.begin(), valid.end(), position) - valid.begin() + 1) % n];
      in.needle_keys[i] = in.indices[t * in.c.topk + position];
    }
  }
}

NeedleCoverage needle_coverage(const Inputs& in) {
  std::vector<bool> asked(in.c.topk), held(in.c.topk);
  for (int64_t t = 0; t < in.tokens(); ++t) {
    std::vector<int64_t> slots;
    for (int32_t h = 0; h < in.c.h_q; ++h) slots.push_back(needle_slot(in, t, h));
    for (int32_t position : valid_positions(in, t)) {
      held[position] = true;
      if (std::find(slots.begin(), slots.end(), in.indices[t * in.c.topk + position]) != slots.end()) asked[position] = true;
    }
  }
  return {std::count(asked.begin(), asked.end(), true), std::count(held.begin(), held.end(), true)};
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
