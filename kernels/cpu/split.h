// SPDX-License-Identifier: Apache-2.0
// The blocked body: how a GPU kernel does it, on a CPU. A work item is one split of one query token: its keys in tiles of 64, online softmax, all
// heads at once. With more than one split, partial (out, lse) go to the workspace and whoever finishes a token last merges them, in order, so that
// bits do not depend on timing. fp8_656, folded: codes are multiplied, scales applied to the scores of each group of 128 channels and folded into P,
// after a power of two is taken out of them so that the largest of a tile and group lies in [1/2, 1). Bound: the two products
// (kernels/cpu/README.md).
#pragma once
#include <atomic>
#include <cstring>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/steps.h"

namespace smla::cpu {

/// The workspace: partials of every (token, split) where there are several, then a thread's memory, `threads` times. Heads are padded to a block of
/// the products.
struct SplitWorkspace {
  static constexpr int kGroups = Fp8Row656::kGroups;
  float* part_out;   // [T][splits][h_q][d_v], normalised; not written where part_lse = -inf
  float* part_lse;   // [T][splits][h_q] BASE E
  int32_t* arrived;  // [T]
  struct Thread {
    float *q, *q_scale;               // [heads][d_qk], [heads]
    float *k, *v;                     // [kTile][d_qk]; v only where it is loaded apart
    float *k_scale, *v_scale;         // [kTile][kGroups]
    float *x, *p;                     // [heads][kTile]
    float *acc, *max, *sum, *factor;  // [heads][d_v], [heads] x 3
    int64_t bytes;
    Thread(Carver memory, const Call& c) {
      const int64_t heads = padded_heads(c), d_qk = c.p.d_qk;
      q = memory.take<float>(heads * d_qk), q_scale = memory.take<float>(heads);
      k = memory.take<float>(kTile * d_qk), v = memory.take<float>(kTile * d_qk);
      k_scale = memory.take<float>(kTile * kGroups), v_scale = memory.take<float>(kTile * kGroups);
      x = memory.take<float>(heads * kTile), p = memory.take<float>(heads * kTile);
      acc = memory.take<float>(heads * c.p.d_v);
      max = memory.take<float>(heads), sum = memory.take<float>(heads), factor = memory.take<float>(heads);
      bytes = memory.used_bytes();
    }
  };

  SplitWorkspace(void* base, const Call& c, int splits) : base_(static_cast<uint8_t*>(base)), c_(c) {
    Carver memory(base);
    const int64_t parts = splits > 1 ? int64_t{c.p.b} * c.p.s_q * splits * c.p.h_q : 0;
    part_out = memory.take<float>(parts * c.p.d_v);
    part_lse = memory.take<float>(parts);
    arrived = memory.take<int32_t>(int64_t{c.p.b} * c.p.s_q);
    shared_bytes_ = memory.used_bytes();
  }
  Thread thread(int worker) const { return Thread(Carver(base_ + shared_bytes_ + worker * Thread(Carver(), c_).bytes), c_); }
  int64_t bytes() const { return shared_bytes_ + std::max(c_.p.threads, 1) * Thread(Carver(), c_).bytes; }
  static int padded_heads(const Call& c) { return (c.p.h_q + kHeadBlock - 1) / kHeadBlock * kHeadBlock; }

 private:
  uint8_t* base_;
  const Call& c_;
  int64_t shared_bytes_;
};

struct SplitBody {
  static const char* refuses(const Call&) { return nullptr; }

  /// num_splits, or by the job: rows are split, 256 keys at least and at most 8 ways, where there are few of them.
  static int splits(const Call& c) {
    if (c.p.num_splits > 0) return c.p.num_splits;
    if (c.config.own_splits == OwnSplits::one || int64_t{c.p.b} * c.p.s_q >= 16) return 1;
    return static_cast<int>(std::clamp<int64_t>(c.max_keys() / 256, 1, 8));
  }
  static int64_t workspace_bytes(const Call& c) { return SplitWorkspace(nullptr, c, splits(c)).bytes(); }

  template <class S>
  static void run(const S& s, const Call& c, void* memory) {
    const int splits = SplitBody::splits(c);
    const SplitWorkspace workspace(memory, c, splits);
    s.reset(c, workspace.arrived);
    parallel_for(s.rows(c) * splits, c.p.threads, [&](int64_t item, int worker) {
      const Row row = s.row(c, item / splits);
      const int split = static_cast<int>(item % splits);
      const auto mine = workspace.thread(worker);
      attend(s, c, row, s.range(c, row, split, splits), mine);
      if (splits == 1) {
        store(s, c, row, mine);
      } else {
        store_partial(s, c, row, split, splits, mine, workspace);
        if (std::atomic_ref(workspace.arrived[row.t]).fetch_add(1, std::memory_order_acq_rel) == splits - 1)
          merge(s, c, row, splits, mine, workspace);
      }
    });
  }

 private:
  using Thread = SplitWorkspace::Thread;
  static constexpr int kGroups = Fp8Row656::kGroups;

  /// Keys [begin, end) of a row for every head: max, sum and the unnormalised acc.
  template <class S>
  static void attend(const S& s, const Call& c, const Row& row, Range range, const Thread& mine) {
    const int heads = SplitWorkspace::padded_heads(c), d_qk = c.p.d_qk, d_v = c.p.d_v;
    for (int h = 0; h < heads; ++h) {
      if (h < c.p.h_q) mine.q_scale[h] = s.load_q(c, row, h, mine.q + h * d_qk);
      else std::fill_n(mine.q + h * d_qk, d_qk, 0.f);
    }
    std::fill_n(mine.p, heads * kTile, 0.f);
    std::fill_n(mine.factor, heads, 0.f);
    std::fill_n(mine.acc, heads * d_v, 0.f);
    std::fill_n(mine.max, heads, s.first_max());
    std::fill_n(mine.sum, heads, 0.f);
    for (int64_t begin = range.begin; begin < range.end; begin += kTile) {
      bool counts[kTile];
      const int keys = gather(s, c, row, begin, range.end, counts, mine);
      multiply_k(s, c, heads, keys, mine);
      for (int h = 0; h < c.p.h_q; ++h) soften(s, c, h, counts, mine);
      multiply_v(s, c, heads, keys, mine);
      s.accumulated(c, mine.acc, c.p.h_q * d_v);
    }
  }

  /// Loads a tile; entries from `end` on, and invalid ones, as zeros. Returns to where it is to be multiplied: the rest of a short tile neither
  /// counts nor is loaded.
  template <class S>
  static int gather(const S& s, const Call& c, const Row& row, int64_t begin, int64_t end, bool* counts, const Thread& mine) {
    const bool apart = s.loads_v_apart();
    Key key[kTile];
    int used = 0;
    for (int i = 0; i < kTile; ++i) {
      key[i] = begin + i < end ? s.key(c, row, begin + i) : s.key_behind(c, row, begin + i);
      counts[i] = key[i].counts;
      if (begin + i < end || key[i].load || key[i].counts) used = i + 1;
    }
    const int keys = (used + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
    for (int i = 0; i < keys; ++i) {
      s.load(c, row, begin + i, key[i], apart ? Side::k : Side::both, mine.k + i * c.p.d_qk, mine.k_scale + i * kGroups);
      if (apart) s.load(c, row, begin + i, key[i], Side::v, mine.v + i * c.p.d_qk, mine.v_scale + i * kGroups);
    }
    if (!c.fp8()) return keys;
    std::fill(mine.k_scale + keys * kGroups, mine.k_scale + kTile * kGroups, 0.f);
    std::fill(mine.v_scale + keys * kGroups, mine.v_scale + kTile * kGroups, 0.f);
    if (c.config.fp8 != Fp8::fold) {
      multiply_out(c, keys, mine.k, mine.k_scale);
      if (apart) multiply_out(c, keys, mine.v, mine.v_scale);
    }
    return keys;
  }

  static void multiply_out(const Call& c, int keys, float* values, const float* scale) {
    const Rounding type = c.config.fp8 == Fp8::dequantise ? Rounding::q : Rounding::fp32;
    for (int i = 0; i < keys; ++i)
      for (int d = 0; d < Fp8Row656::kLatent; ++d) {
        float& value = values[i * c.p.d_qk + d];
        value = rounded(value * scale[i * kGroups + d / Fp8Row656::kGroup], type, c.q_type());
      }
  }

  /// x = q . k
  template <class S>
  static void multiply_k(const S& s, const Call& c, int heads, int keys, const Thread& mine) {
    ScaledChannels segments[kGroups + 1] = {{0, c.p.d_qk, nullptr, 0}};
    int num_segments = 1;
    if (c.fp8() && c.config.fp8 == Fp8::fold) {
      for (int group = 0; group < kGroups; ++group)
        segments[group] = {group * Fp8Row656::kGroup, (group + 1) * Fp8Row656::kGroup, mine.k_scale + group, kGroups};
      segments[kGroups] = {Fp8Row656::kLatent, c.p.d_qk, nullptr, 0};
      num_segments = kGroups + 1;
    }
    s.scores(mine.q, mine.k, heads, keys, c.p.d_qk, segments, num_segments, mine.x);
  }

  /// One head's scores become weights exp(x - max); max and sum move on; factor is what acc is to be multiplied by.
  template <class S>
  static void soften(const S& s, const Call& c, int h, const bool* counts, const Thread& mine) {
    float* x = mine.x + h * kTile;
    float* p = mine.p + h * kTile;
    const float scale = s.sm_scale(c) * mine.q_scale[h];
    for (int i = 0; i < kTile; ++i) x[i] = s.masked(x[i] * scale, counts[i]);
    const float old = mine.max[h], m = s.next_max(c, old, largest(x));
    const float anchor = s.anchor(m);
    for (int i = 0; i < kTile; ++i) p[i] = s.exp(x[i] - anchor);
    const Rescale rescale = s.rescale(old, m);
    const bool rounded_sum = c.config.row_sum == RowSum::rounded;
    if (rounded_sum) s.round_p(c, p, kTile);
    mine.sum[h] = std::fma(mine.sum[h], rescale.sum, sum(p, kTile) / (rounded_sum ? c.config.p_scale : 1));
    mine.max[h] = m;
    mine.factor[h] = rescale.acc;
  }

  static float largest(const float* x) {
    float lanes[8];
    std::copy_n(x, 8, lanes);
    for (int i = 8; i < kTile; i += 8)
      for (int lane = 0; lane < 8; ++lane) lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    return *std::max_element(lanes, lanes + 8);
  }

  /// acc = acc * factor + P v, P rounded.
  template <class S>
  static void multiply_v(const S& s, const Call& c, int heads, int keys, const Thread& mine) {
    const float* v = s.loads_v_apart() ? mine.v : mine.k;
    if (!c.fp8() || c.config.fp8 != Fp8::fold) {
      if (c.config.row_sum == RowSum::exact) s.round_p(c, mine.p, heads * kTile);
      s.weigh(mine.p, v, heads, keys, c.p.d_qk, 0, c.p.d_v, mine.factor, 1 / c.config.p_scale, mine.acc, c.p.d_v);
      return;
    }
    const float* v_scale = s.loads_v_apart() ? mine.v_scale : mine.k_scale;
    for (int begin = 0, group = 0; begin < c.p.d_v; begin += Fp8Row656::kGroup, ++group) {
      float scale[kTile];
      const float norm = s.fold(v_scale + group, kGroups, scale);
      for (int h = 0; h < heads; ++h)
        for (int i = 0; i < kTile; ++i) mine.x[h * kTile + i] = mine.p[h * kTile + i] * scale[i];
      s.round_p(c, mine.x, heads * kTile);
      s.weigh(mine.x, v, heads, keys, c.p.d_qk, begin, std::min(begin + Fp8Row656::kGroup, c.p.d_v), mine.factor, norm / c.config.p_scale, mine.acc,
              c.p.d_v);
    }
  }

  template <class S>
  static void store(const S& s, const Call& c, const Row& row, const Thread& mine) {
    for (int h = 0; h < c.p.h_q; ++h) {
      const Finished done = s.finish(mine.max[h], mine.sum[h], false);
      store_final(s, c, row, h, mine.acc + h * c.p.d_v, done.scale, done.lse);
    }
  }

  /// out = acc * scale, with the sink.
  template <class S>
  static void store_final(const S& s, const Call& c, const Row& row, int h, float* acc, float scale, float lse) {
    const float sink = s.sink(c, row, h), factor = scale * s.sink_factor(lse, sink);
    for (int d = 0; d < c.p.d_v; ++d) acc[d] *= factor;
    s.store(c, row, h, acc, s.declared_lse(c, lse, sink));
  }

  template <class S>
  static void store_partial(const S& s, const Call& c, const Row& row, int split, int splits, const Thread& mine, const SplitWorkspace& workspace) {
    for (int h = 0; h < c.p.h_q; ++h) {
      const Finished done = s.finish(mine.max[h], mine.sum[h], true);
      const int64_t part = s.part_written_at(c, row, split, splits, h);
      workspace.part_lse[part] = done.lse;
      if (done.lse == -kInf) continue;
      for (int d = 0; d < c.p.d_v; ++d)
        workspace.part_out[part * c.p.d_v + d] = rounded(mine.acc[h * c.p.d_v + d] * done.scale, c.config.part, c.q_type());
    }
  }

  /// L = log sum_i exp(lse_i);  out = sum_i exp(lse_i - L) out_i, over the splits that saw a key.
  template <class S>
  static void merge(const S& s, const Call& c, const Row& row, int splits, const Thread& mine, const SplitWorkspace& workspace) {
    for (int h = 0; h < c.p.h_q; ++h) {
      const auto part_at = [&](int split) { return s.part_at(c, row, split, splits, h); };
      float m = -kInf, sum = 0;
      for (int split = 0; split < splits; ++split) m = std::max(m, workspace.part_lse[part_at(split)]);
      for (int i = 0; i < splits; ++i) sum += s.merge_term(workspace.part_lse[part_at(s.merge_order(i, splits))], m);
      const float lse = s.merged_lse(m, sum);
      std::fill_n(mine.acc, c.p.d_v, 0.f);
      for (int i = 0; i < splits; ++i) {
        const int64_t part = part_at(s.merge_order(i, splits));
        const float weight = s.merge_weight(workspace.part_lse[part], lse, splits);
        if (s.merge_skips(weight)) continue;
        for (int d = 0; d < c.p.d_v; ++d) mine.acc[d] = std::fma(weight, workspace.part_out[part * c.p.d_v + d], mine.acc[d]);
      }
      store_final(s, c, row, h, mine.acc, 1.f, lse);
    }
  }
};

}  // namespace smla::cpu
