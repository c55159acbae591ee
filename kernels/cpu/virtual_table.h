// SPDX-License-Identifier: Apache-2.0
// A dense paged kernel, unmodified, made sparse by what it is fed: page_size 1, each query token a request of its own, its valid slots as the block
// table and their number as its length. The baseline that every sparse kernel has to beat.
#pragma once
#include "kernels/cpu/split.h"

namespace smla::cpu {

struct VirtualTableBody {
  static const char* refuses(const Call& c) {
    if (c.p.page_stride_bytes != c.p.page_size * Healthy().row_bytes(c)) return "a padded page stride cannot be addressed with page_size 1";
    if (c.p.num_slots > INT32_MAX) return "more slots than page_size 1 can number in 32 bits";
    return nullptr;
  }
  static int splits(const Call& c) { return SplitBody::splits(Dense(c)); }
  static int64_t workspace_bytes(const Call& c) { return Tables(nullptr, c).bytes + SplitBody::workspace_bytes(Dense(c)); }

  template <class S>
  static void run(const S& s, const Call& c, void* workspace) {
    const Tables tables(workspace, c);
    parallel_for(s.rows(c), c.p.threads, [&](int64_t item, int) { compact(s, c, s.row(c, item), tables); });
    Dense dense(c);
    for (int i = 0; i < dense.launches; ++i) {
      const Row first = {0, dense.by_query ? 0 : i, dense.by_query ? i : 0};
      dense.io.q = s.q_row(c, first, 0);
      dense.io.out = s.out_row(c, first, 0);
      dense.io.lse = s.lse_at(c, first, 0);
      dense.io.block_table = tables.slots + int64_t{i} * dense.problem.b * c.p.topk;
      dense.io.seq_lens = tables.lengths + int64_t{i} * dense.problem.b;
      SplitBody::run(s, dense, static_cast<uint8_t*>(workspace) + tables.bytes);
    }
  }

 private:
  struct Tables {
    int32_t *slots, *lengths;  // [T][topk], [T], in the order of the dense launches
    int64_t bytes;
    Tables(void* base, const Call& c) {
      Carver memory(base);
      slots = memory.take<int32_t>(int64_t{c.p.b} * c.p.s_q * c.p.topk), lengths = memory.take<int32_t>(int64_t{c.p.b} * c.p.s_q);
      bytes = memory.used_bytes();
    }
  };

  /// The call that the dense kernel sees. A launch takes one stride from token to token, so it covers all requests at one query position, or all
  /// positions of one request, whichever are more.
  struct Dense {
    bool by_query;
    int launches;
    smla_problem problem;
    smla_buffers io;
    Config config;
    explicit Dense(const Call& c) : by_query(c.p.b >= c.p.s_q), launches(by_query ? c.p.s_q : c.p.b), problem(c.p), io(c.io), config(c.config) {
      const int along = by_query ? 0 : 1;
      problem.b = by_query ? c.p.b : c.p.s_q;
      problem.s_q = 1;
      problem.q_stride_bytes[0] = c.p.q_stride_bytes[along];
      problem.out_stride_bytes[0] = c.p.out_stride_bytes[along];
      problem.lse_stride_bytes[0] = c.p.lse_stride_bytes[along];
      problem.page_size = 1;
      problem.num_pages = static_cast<int32_t>(c.p.num_slots);
      problem.page_stride_bytes = Healthy().row_bytes(c);
      problem.max_pages = c.p.topk;
      problem.block_table_stride_bytes = 4 * int64_t{c.p.topk};
      problem.flags = SMLA_FLAG_DENSE_SET;
      io.indices = io.topk_length = nullptr;
      config.source = Source::table;
    }
    operator Call() const { return {problem, io, config}; }
  };

  /// The valid slots of a row, in order; up to its first invalid entry where the kernel takes tail padding only.
  template <class S>
  static void compact(const S& s, const Call& c, const Row& row, const Tables& tables) {
    const int64_t token = c.p.b >= c.p.s_q ? int64_t{row.j} * c.p.b + row.r : row.t;
    int32_t* slots = tables.slots + token * c.p.topk;
    int32_t length = 0;
    for (int64_t i = 0, keys = s.keys(c, row); i < keys; ++i) {
      const Key key = s.key(c, row, i);
      if (key.counts) slots[length++] = static_cast<int32_t>(key.slot);
      else if (c.config.padding == Padding::tail_only) break;
    }
    tables.lengths[token] = length;
  }
};

}  // namespace smla::cpu
