// SPDX-License-Identifier: Apache-2.0
// A captured call judged by the oracle: the verdict, and the rows that are furthest off.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "harness/capture/captured_call.h"
#include "harness/compare_rows.h"
#include "harness/exit_status.h"
#include "harness/figure.h"
#include "harness/impostors.h"
#include "harness/verbs/verb_flags.h"
#include "harness/verbs/verbs.h"
#include "harness/verdict.h"
#include "reference/exact.h"

namespace smla {
namespace {

constexpr int64_t kBlockRows = 512;  // rows of one oracle block

/// A row that was compared, and how near to its limits it comes: over 1 is wrong.
struct Ranked {
  double share = 0;
  int64_t t = 0;
  int32_t h = 0;
  RowStats stats;
  double want = 0, want_lse = 0, n = 0;
};

/// Empty, or how many entries within K_t name neither a slot of the pool nor -1. They are judged as no key, which is right, and may still be a
/// mistake.
std::string entries_beyond_pool(const Inputs& in) {
  int64_t count = 0, first = 0;
  for (int64_t t = 0; t < in.tokens(); ++t)
    for (int64_t i = t * in.c.topk; i < t * in.c.topk + in.k_t(t); ++i)
      if (in.indices[static_cast<size_t>(i)] != -1 && !in.is_valid(in.indices[static_cast<size_t>(i)]) && count++ == 0) first = i;
  if (count == 0) return {};
  const int64_t t = first / in.c.topk;
  return fmt::format("{} entries of the lists name no slot of the pool's {} and are not -1: no keys; the first is b={} s_q={} entry {}: {}", count,
                     in.num_slots, t / in.c.s_q, t % in.c.s_q, first % in.c.topk, in.indices[static_cast<size_t>(first)]);
}

class Replay {
 public:
  Replay(const CapturedCall& call, const ReplayFlags& flags)
      : call_(call),
        judged_by_(flags.accept == Accept::declared ? call.contract : with_reference_precision(call.contract)),
        comparer_(call.in, judged_by_, call.in.c.num_splits != 1),
        impostors_(call.in, judged_by_, call.in.c.num_splits != 1),
        not_finite_(find_not_finite(call.in)) {
    options_.threads = flags.threads > 0 ? flags.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    options_.score_errors = {score_error(judged_by_, call.in.c), score_error(with_reference_precision(judged_by_), call.in.c)};
  }

  void judge() {
    std::vector<int64_t> tokens(static_cast<size_t>(call_.in.tokens()));
    std::iota(tokens.begin(), tokens.end(), 0);
    std::erase_if(tokens, [&](int64_t t) { return std::binary_search(not_finite_.tokens.begin(), not_finite_.tokens.end(), t); });
    const size_t block_tokens = static_cast<size_t>(std::max<int64_t>(options_.threads, kBlockRows / call_.in.c.h_q));
    for (size_t from = 0; from < tokens.size(); from += block_tokens)
      judge_block(std::span(tokens).subspan(from, std::min(block_tokens, tokens.size() - from)));
    std::stable_sort(rows_.begin(), rows_.end(), [](const Ranked& a, const Ranked& b) { return a.share > b.share; });
  }

  Decision decision() const {
    Evidence evidence;
    evidence.figures = comparer_.figures();
    evidence.has_lse = judged_by_.lse_dtype != LseType::none;
    return decide(evidence);
  }

  void print(const Decision& verdict, int64_t worst) const {
    const Case& c = call_.in.c;
    const RowFigures& f = comparer_.figures();
    fmt::print("call    {} b={} s_q={} h_q={} topk={} d_qk={} q {} kv {}, {} slots in pages of {}, sm_scale {}{}\n", name_of(c.pass_kind), c.b, c.s_q,
               c.h_q, c.topk, c.d_qk, name_of(c.q_dtype), name_of(c.kv_format), call_.in.num_slots, c.page_size, c.sm_scale,
               call_.kernel.empty() ? "" : ", by " + call_.kernel);
    if (const std::string words = contract_words(judged_by_); !words.empty()) fmt::print("judged  by what it declares: {}\n", words);
    if (!not_finite_.tokens.empty())
      fmt::print("inputs  {}: {} of {} tokens read what is no number and are not judged\n", not_finite_.where, not_finite_.tokens.size(),
                 call_.in.tokens());
    if (const std::string beyond = entries_beyond_pool(call_.in); !beyond.empty()) fmt::print("inputs  {}\n", beyond);
    if (f.rows == 0) return void(fmt::print("result  nothing could be judged\n"));
    fmt::print("result  {}: {} rows, z max {} of {:g}, row rms {} of its limit, pooled {}, lse {} of its limit\n", name_of(verdict.status()), f.rows,
               fixed_beside(f.out.z_max, limits_.z_max), limits_.z_max, fixed_beside(f.row_rms_share_max, 1),
               f.pooled.rows > 0 ? fmt::format("{} of {:g}", fixed_beside(f.pooled_rms(), limits_.pooled_rms), limits_.pooled_rms) : "-",
               judged_by_.lse_dtype == LseType::none ? "-" : fixed_beside(f.lse_ratio_max, limits_.lse_ratio));
    if (!verdict.out_detail.empty()) fmt::print("        out: {}\n", verdict.out_detail);
    if (!verdict.lse_detail.empty()) fmt::print("        lse: {}\n", verdict.lse_detail);
    if (const std::string accepted = impostors_.accepted(); !accepted.empty())
      fmt::print("note    this call cannot tell a wrong kernel from a right one: {}\n", accepted);
    fmt::print("worst rows\n");
    for (size_t i = 0; i < std::min(rows_.size(), static_cast<size_t>(worst)); ++i) print_row(rows_[i]);
  }

  bool judged() const { return comparer_.figures().rows > 0; }

 private:
  void judge_block(std::span<const int64_t> tokens) {
    const Case& c = call_.in.c;
    const OracleBlock block = oracle(call_.in, tokens, options_);
    std::vector<uint16_t> out;
    std::vector<float> lse;
    const size_t h_q = static_cast<size_t>(c.h_q), token_out = h_q * static_cast<size_t>(c.d_v);
    for (int64_t t : tokens) {
      const auto first = call_.out.begin() + t * static_cast<int64_t>(token_out);
      out.insert(out.end(), first, first + static_cast<int64_t>(token_out));
      if (!call_.lse.empty()) lse.insert(lse.end(), call_.lse.begin() + t * c.h_q, call_.lse.begin() + (t + 1) * c.h_q);
    }
    comparer_.add(&block, tokens, {out, lse});
    impostors_.add(&block, tokens);
    std::vector<float> row(static_cast<size_t>(c.d_v));
    for (int64_t r = 0; r < block.rows(); ++r) {
      for (size_t d = 0; d < row.size(); ++d) row[d] = widen(c.q_dtype, out[static_cast<size_t>(r) * row.size() + d]);
      Ranked ranked;
      ranked.stats = judge_row(block, r, call_.in, judged_by_, c.num_splits != 1, row, lse.empty() ? 0 : lse[static_cast<size_t>(r)]);
      const RowStats& s = ranked.stats;
      ranked.share =
          std::max({s.judged ? s.z_max / 6 : 0.0, s.judged && s.rms_limit > 0 ? s.rms / s.rms_limit : 0.0, lse.empty() ? 0.0 : s.lse_ratio});
      ranked.share += s.n_nonfinite_mismatch > 0 ? 1e18 : s.n_bad > 0 ? 1e9 : 0;  // rows with wrong elements first, the worst of them in front
      ranked.t = tokens[static_cast<size_t>(r / c.h_q)];
      ranked.h = static_cast<int32_t>(r % c.h_q);
      ranked.want = block.out(r, s.z_argmax);
      ranked.want_lse = block.lse[r];
      ranked.n = block.n[r];
      rows_.push_back(ranked);
    }
    if (rows_.size() > kKept) {
      std::nth_element(rows_.begin(), rows_.begin() + kKept / 2, rows_.end(), [](const Ranked& a, const Ranked& b) { return a.share > b.share; });
      rows_.resize(kKept / 2);
    }
  }

  void print_row(const Ranked& row) const {
    const Case& c = call_.in.c;
    const RowStats& s = row.stats;
    const size_t at = static_cast<size_t>((row.t * c.h_q + row.h) * c.d_v + s.z_argmax);
    fmt::print("  {} b={} s_q={} h={} ({} keys): z {} at d={}, got {:.6g}, want {:.6g}; row rms {} of {:.4g}", s.ok() ? "ok  " : "FAIL",
               row.t / c.s_q, row.t % c.s_q, row.h, row.n, fixed_beside(s.z_max, limits_.z_max), s.z_argmax, widen(c.q_dtype, call_.out[at]),
               row.want, fixed_beside(s.rms, s.rms_limit), s.rms_limit);
    if (s.n_bad > 0) fmt::print("; {} elements out of bounds", s.n_bad);
    if (!call_.lse.empty())
      fmt::print("; lse {:.7g}, base e without sink {:.7g}, {} of its limit", call_.lse[static_cast<size_t>(row.t * c.h_q + row.h)], row.want_lse,
                 fixed_beside(s.lse_ratio, limits_.lse_ratio));
    fmt::print("\n");
  }

  static constexpr size_t kKept = 1 << 16;
  const CapturedCall& call_;
  const Contract judged_by_;
  const Limits limits_;
  RowComparer comparer_;
  ImpostorWatch impostors_;
  const NotFinite not_finite_;
  OracleOptions options_;
  std::vector<Ranked> rows_;
};

}  // namespace

int verb_replay(int argc, char** argv) {
  ReplayFlags flags;
  if (!parse_flags(flags, argc, argv)) return kAllGreen;
  const CapturedCall call = read_captured_call(flags.file, flags.contract);
  Replay replay(call, flags);
  replay.judge();
  const Decision verdict = replay.decision();
  replay.print(verdict, flags.rows);
  if (!replay.judged()) return kNoPass;
  return verdict.status() == Status::pass ? kAllGreen : kCorrectnessRed;
}

}  // namespace smla
