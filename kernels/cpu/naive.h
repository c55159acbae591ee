// SPDX-License-Identifier: Apache-2.0
// The plain body: one query token at a time, every score kept, softmax over the whole row, all in fp32. No tiles, no splits, no online softmax.
#pragma once
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/steps.h"

namespace smla::cpu {

/// A thread's memory.
struct NaiveScratch {
  float *q, *x, *key, *acc;  // [h_q][d_qk], [h_q][max_keys], [d_qk], [h_q][d_v]
  NaiveScratch(Carver memory, const Call& c)
      : q(memory.take<float>(int64_t{c.p.h_q} * c.p.d_qk)),
        x(memory.take<float>(c.p.h_q * c.max_keys())),
        key(memory.take<float>(c.p.d_qk)),
        acc(memory.take<float>(int64_t{c.p.h_q} * c.p.d_v)),
        bytes(memory.used_bytes()) {}
  int64_t bytes;
};

struct NaiveBody {
  static const char* refuses(const Call&) { return nullptr; }
  static int splits(const Call&) { return 1; }
  static int64_t workspace_bytes(const Call& c) { return NaiveScratch(Carver(), c).bytes * std::max(c.p.threads, 1); }

  template <class S>
  static void run(const S& s, const Call& c, void* workspace) {
    const int64_t stride = NaiveScratch(Carver(), c).bytes;
    parallel_for(s.rows(c), c.p.threads, [&](int64_t item, int worker) {
      attend(s, c, s.row(c, item), NaiveScratch(Carver(static_cast<uint8_t*>(workspace) + worker * stride), c));
    });
  }

 private:
  template <class S>
  static void attend(const S& s, const Call& c, const Row& row, const NaiveScratch& mine) {
    const int d_qk = c.p.d_qk, d_v = c.p.d_v, h_q = c.p.h_q;
    const int64_t keys = s.keys(c, row), max_keys = c.max_keys();

    // One key, with the scales of fp8_656 multiplied in: one more fp32 rounding, like those of the sums.
    const auto load = [&](int64_t i, Side side) {
      const Key key = s.key(c, row, i);
      float scale[Fp8Row656::kGroups];
      s.load(c, row, i, key, side, mine.key, scale);
      if (c.fp8())
        for (int channel = 0; channel < Fp8Row656::kLatent; ++channel) mine.key[channel] *= scale[channel / Fp8Row656::kGroup];
      return key.counts;
    };

    for (int h = 0; h < h_q; ++h) {
      const float factor = s.load_q(c, row, h, mine.q + h * d_qk);
      for (int d = 0; d < d_qk; ++d) mine.q[h * d_qk + d] *= factor;
    }
    for (int64_t i = 0; i < keys; ++i) {
      const bool counts = load(i, Side::k);
      for (int h = 0; h < h_q; ++h) mine.x[h * max_keys + i] = s.masked(dot(mine.q + h * d_qk, mine.key, d_qk) * s.sm_scale(c), counts);
    }

    for (int h = 0; h < h_q; ++h) {  // mine.x becomes P / sum, and mine.q[h] keeps the lse: q is done with
      float* x = mine.x + h * max_keys;
      float m = s.first_max();
      for (int64_t i = 0; i < keys; ++i) m = s.next_max(c, m, x[i]);
      for (int64_t i = 0; i < keys; ++i) x[i] = s.exp(x[i] - s.anchor(m));
      const Finished done = s.finish(m, sum(x, keys), false);
      const float sink = s.sink(c, row, h), factor = done.scale * s.sink_factor(done.lse, sink);
      for (int64_t i = 0; i < keys; ++i) x[i] *= factor;
      mine.q[h] = s.declared_lse(c, done.lse, sink);
    }

    std::fill_n(mine.acc, h_q * d_v, 0.f);
    for (int64_t i = 0; i < keys; ++i) {
      load(i, Side::v);
      for (int h = 0; h < h_q; ++h) {
        float* acc = mine.acc + h * d_v;
        const float p = mine.x[h * max_keys + i];
        for (int d = 0; d < d_v; ++d) acc[d] = std::fma(p, mine.key[d], acc[d]);
        s.accumulated(c, acc, d_v);
      }
    }
    for (int h = 0; h < h_q; ++h) s.store(c, row, h, mine.acc + h * d_v, mine.q[h]);
  }
};

}  // namespace smla::cpu
