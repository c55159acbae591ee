// SPDX-License-Identifier: Apache-2.0
#include "harness/cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <set>

#include "cases/kv_format.h"
#include "harness/reread.h"
#include "reference/decode.h"
#include "reference/exact.h"

namespace smla {
namespace {

using Row = WrongRow;
constexpr double kInf = std::numeric_limits<double>::infinity(), kNone = std::numeric_limits<double>::quiet_NaN();

/// A cause, tried on one row: clauses that give the kernel's answer, the most telling first. `of_lse`: lse is what is to be explained.
using Texts = std::vector<std::string>;
using Cause = std::function<Texts(const Row&, bool of_lse)>;
struct Place {
  int64_t t, h;
};

/// The kinds of causes. A function that they are given answers false, or what is no number, where the cause is none.
struct Table {
  std::vector<Cause> causes;

  void reads(const std::string& text, const std::function<bool(const Row&, Reading&)>& change) {
    causes.emplace_back([=](const Row& row, bool of_lse) {
      Reading r = row.right;
      return change(row, r) && row.is(row.call.answer(r), of_lse) ? Texts{text} : Texts{};
    });
  }
  void scale(const char* text, double (*sm_scale)(const Case& c)) {
    reads(text, [=](const Row& row, Reading& r) { return r.x *= sm_scale(row.in().c) / static_cast<double>(row.in().c.sm_scale), true; });
  }
  void sink(const char* text, double (*of)(const Row& row)) {
    reads(text, [=](const Row& row, Reading& r) { return r.sink = of(row), !row.in().sink.empty(); });
  }
  /// The list ends before this position. What names a slot behind K_t counts, too, if it holds numbers.
  void end(const char* text, int32_t (*before)(const Row& row)) {
    reads(text, [=](const Row& row, Reading& r) {
      for (int64_t i = 0; i < r.m.size(); ++i) r.m[i] = row.keys().position[i] < before(row);
      const auto poisoned = [&](int32_t slot) { return row.in().is_valid(slot) && !row.call.holds_numbers(slot); };
      return r.m != row.right.m && std::none_of(row.list() + row.k_t(), row.list() + std::max(row.k_t(), before(row)), poisoned);
    });
  }
  /// Entries that name no slot are read as one; -1: this one is not.
  void invalid(const char* text, int64_t (*slot)(int64_t entry, int64_t slots)) {
    reads(text, [=](const Row& row, Reading& r) {
      std::map<int64_t, double> times;
      for (int32_t p = 0; p < row.k_t(); ++p)
        if (!row.in().is_valid(row.list()[p])) ++times[slot(row.list()[p], row.in().num_slots)];
      times.erase(-1);
      return !times.empty() && std::all_of(times.begin(), times.end(), [&](const auto& of) { return row.count(r, of.first, of.second); });
    });
  }
  /// Scales of fp8_656, where they are no powers of two.
  void fp8(const std::string& text, float (*scale_of)(const float* scales, int group)) {
    for (const int sides : {3, 1, 2})
      reads(text + (sides == 1   ? ", in K alone"
                    : sides == 2 ? ", in V alone"
                                 : ""),
            [=](const Row& row, Reading& r) {
              if (row.in().c.kv_format != KvFormat::fp8_656 || row.in().c.scales == Scales::pow2) return false;
              Keys keys = row.keys();
              for (size_t at = Fp8Row656::kLatent; at < keys.bytes.size(); at += static_cast<size_t>(row.in().row_bytes)) {
                float stored[4], read[4];
                std::memcpy(stored, keys.bytes.data() + at, sizeof stored);
                for (int group = 0; group < 4; ++group) read[group] = scale_of(stored, group);
                std::memcpy(keys.bytes.data() + at, read, sizeof read);
              }
              row.call.decode(keys);
              if (sides & 1) r.x = row.call.scores(keys.k, row.t, row.h);
              if (sides & 2) r.v = keys.k.leftCols(row.in().c.d_v);
              return true;
            });
  }
  /// Another row's answer, list, query or lse.
  void other(const std::string& whose, Place (*place)(const Case& c, int64_t t, int64_t h)) {
    causes.emplace_back([=](const Row& row, bool of_lse) {
      const Place at = place(row.in().c, row.t, row.h);
      const auto h = static_cast<int32_t>(at.h);
      if (at.t < 0 || at.t >= row.in().tokens() || h < 0 || h >= row.in().c.h_q || (at.t == row.t && h == row.h)) return Texts{};
      Texts texts;
      const auto tries = [&](const char* what, int64_t list, int64_t query, double its_sink) {
        Reading r = row.call.reading(list, query, h);
        r.sink = its_sink;
        const Reread a = row.call.answer(r);
        if (texts.empty() && row.is(a, of_lse)) texts.push_back(what + whose);
        return a;
      };
      const Reread its = tries("this were the answer to ", at.t, at.t, sink_of(row.in(), h));
      if (texts.empty() && !of_lse && row.is_out(its)) texts.push_back("this were the out of " + whose);
      if (texts.empty() && of_lse && row.stats.out_ok() && row.is_lse(its.lse)) texts.push_back("this were the lse of " + whose);
      tries("this, but for the sink, were the answer to ", at.t, at.t, row.right.sink);
      if (h == row.h) tries("the list were that of ", at.t, row.t, row.right.sink);
      tries("q were that of ", row.t, at.t, row.right.sink);
      return texts;
    });
  }
  void lse(const char* text, double (*value)(const Row& row, double right)) {
    causes.emplace_back(
        [=](const Row& row, bool of_lse) { return of_lse && row.is_lse(value(row, row.stats.lse_expected)) ? Texts{text} : Texts{}; });
  }
};

/// One entry left out or counted twice: got (Z + a e) = S + a e v with a = -1 or 1, so it is the entry with the least |S - got Z + a e (v - got)|.
Texts one_entry(const Row& row, bool of_lse) {
  const int64_t n = row.keys().n;
  if (n < 2) return {};
  const double top = row.right.x.head(n).maxCoeff();
  const Eigen::VectorXd e = (row.right.x.head(n).array() - top).exp();
  const auto v = row.right.v.topRows(n);
  const Eigen::VectorXd left = v.transpose() * e - row.got * (e.sum() + std::exp(row.right.sink - top));
  const RowMatrixXd apart = v.rowwise() - row.got.transpose();
  const Eigen::VectorXd dots = (apart * left).cwiseProduct(e), squares = apart.rowwise().squaredNorm().cwiseProduct(e.cwiseProduct(e));
  for (const int a : {-1, 1}) {
    int64_t i = 0;
    (squares + 2 * a * dots).minCoeff(&i);
    Reading r = row.right;
    r.m[i] += a;
    if ((a < 0 && (i == 0 || i == n - 1)) || !row.is(row.call.answer(r), of_lse)) continue;  // those are tried by name
    const char* what = a < 0 ? "were left out" : "counted twice";
    return {fmt::format("entry {} {}", row.keys().position[i], what), fmt::format("one entry {}", what)};
  }
  return {};
}

std::vector<Cause> table() {
  Table all;
  all.scale("sm_scale were applied twice", [](const Case& c) { return std::pow(static_cast<double>(c.sm_scale), 2); });
  all.scale("sm_scale were not applied", [](const Case&) { return 1.0; });
  all.scale("sm_scale were doubled", [](const Case& c) { return 2 * static_cast<double>(c.sm_scale); });
  all.scale("sm_scale were d_qk^-0.5", [](const Case& c) { return 1 / std::sqrt(c.d_qk); });
  all.scale("sm_scale were 192^-0.5", [](const Case&) { return 1 / std::sqrt(192.0); });
  all.scale("exp(x) were 2^x", [](const Case& c) { return std::numbers::ln2 * static_cast<double>(c.sm_scale); });
  all.sink("the sink were ignored", [](const Row&) { return -kInf; });
  all.sink("the sink counted twice", [](const Row& row) { return row.right.sink + std::numbers::ln2; });
  all.sink("the sink were multiplied by sm_scale", [](const Row& row) { return row.right.sink * static_cast<double>(row.in().c.sm_scale); });
  all.sink("the sink were in base 2", [](const Row& row) { return row.right.sink * std::numbers::ln2; });
  all.sink("the sink were head 0's", [](const Row& row) { return sink_of(row.in(), 0); });
  all.sink("the sink were indexed by query token", [](const Row& row) { return sink_of(row.in(), row.t % row.in().c.h_q); });
  all.reads("the first valid entry were left out", [](const Row& row, Reading& r) { return row.keys().n > 0 && (r.m[0] = 0, true); });
  all.reads("the last valid entry were left out", [](const Row& row, Reading& r) { return row.keys().n > 0 && (r.m[row.keys().n - 1] = 0, true); });
  all.causes.emplace_back(one_entry);
  all.end("the list ended at its first invalid entry", [](const Row& row) {
    const auto is_invalid = [&](int32_t slot) { return !row.in().is_valid(slot); };
    return static_cast<int32_t>(std::find_if(row.list(), row.list() + row.k_t(), is_invalid) - row.list());
  });
  all.end("as many entries were read as are valid", [](const Row& row) { return static_cast<int32_t>(row.keys().n); });
  all.end("the last tile of 64 were left out", [](const Row& row) { return (row.k_t() - 1) / 64 * 64; });
  all.end("one entry behind topk_length counted", [](const Row& row) { return std::min(row.k_t() + 1, row.in().c.topk); });
  all.end("topk_length were ignored", [](const Row& row) { return row.in().c.topk; });
  all.invalid("-1 were slot 0", [](int64_t entry, int64_t) -> int64_t { return entry == -1 ? 0 : -1; });
  all.invalid("entries outside of the pool were taken modulo its slots",
              [](int64_t entry, int64_t slots) { return (entry % slots + slots) % slots; });
  static constexpr auto kRest = [](const Row& row) { return (64 - row.k_t() % 64) % 64; };
  all.reads("the rest of the last tile were slot 0", [](const Row& row, Reading& r) { return kRest(row) > 0 && row.count(r, 0, kRest(row)); });
  all.reads("the rest of the last tile counted, with score 0 and value 0", [](const Row& row, Reading& r) {
    return Row::count(r, 0, RowMatrixXd::Zero(1, row.in().c.d_v), kRest(row)), kRest(row) > 0 && row.keys().n > 0;
  });
  all.reads("a slot that is named twice counted once", [](const Row& row, Reading& r) {
    std::set<int32_t> seen;
    for (int64_t i = 0; i < row.keys().n; ++i) r.m[i] = seen.insert(row.keys().slot[i]).second;
    return r.m != row.right.m;
  });
  all.reads("the RoPE part were left out of the scores", [](const Row& row, Reading& r) {
    RowMatrixXd k = row.keys().k;
    k.rightCols(row.in().c.d_qk - row.in().c.d_v).setZero();
    return r.x = row.call.scores(k, row.t, row.h), row.in().c.d_qk > row.in().c.d_v;
  });
  all.reads("V were the last d_v channels of K",
            [](const Row& row, Reading& r) { return r.v = row.keys().k.rightCols(row.in().c.d_v), row.in().c.d_qk > row.in().c.d_v; });
  all.fp8("the fp8 scales were cut to powers of two", [](const float* s, int group) { return std::exp2(std::floor(std::log2(s[group]))); });
  all.fp8("the fp8 scales were ignored", [](const float*, int) { return 1.0f; });
  all.fp8("the fp8 scales were rounded to bf16", [](const float* s, int group) { return widen(FloatType::bf16, to_bf16(s[group])); });
  all.fp8("values were divided by the fp8 scales", [](const float* s, int group) { return 1 / s[group]; });
  all.fp8("a row's first fp8 scale were that of all groups", [](const float* s, int) { return s[0]; });
  all.fp8("each group had the next one's fp8 scale", [](const float* s, int group) { return s[(group + 1) % 4]; });
  all.fp8("codes were e4m3fnuz, half the value", [](const float* s, int group) { return s[group] / 2; });
  all.other("the neighbouring head", [](const Case&, int64_t t, int64_t h) { return Place{t, h ^ 1}; });
  all.other("head 0", [](const Case&, int64_t t, int64_t) { return Place{t, 0}; });
  all.other("head h - 64", [](const Case&, int64_t t, int64_t h) { return Place{t, h - 64}; });
  all.other("the next query token", [](const Case&, int64_t t, int64_t h) { return Place{t + 1, h}; });
  all.other("the query token before", [](const Case&, int64_t t, int64_t h) { return Place{t - 1, h}; });
  all.other("its request's first query token", [](const Case& c, int64_t t, int64_t h) { return Place{t / c.s_q * c.s_q, h}; });
  all.other("its request's query tokens in reverse", [](const Case& c, int64_t t, int64_t h) {
    return Place{t / c.s_q * c.s_q + c.s_q - 1 - t % c.s_q, h};
  });
  all.other("the neighbouring request", [](const Case& c, int64_t t, int64_t h) { return Place{(t / c.s_q ^ 1) * c.s_q + t % c.s_q, h}; });
  all.other("row r + j", [](const Case& c, int64_t t, int64_t h) { return Place{t / c.s_q + t % c.s_q, h}; });
  all.other("the row there in [h_q][b * s_q]", [](const Case& c, int64_t t, int64_t h) {
    const int64_t at = t * c.h_q + h;
    return Place{at % c.tokens(), at / c.tokens()};
  });
  all.other("the row there in [b][h_q][s_q]", [](const Case& c, int64_t t, int64_t h) {
    const int64_t at = t % c.s_q * c.h_q + h;
    return Place{t / c.s_q * c.s_q + at % c.s_q, at / c.s_q};
  });
  all.lse("it were in base 2",
          [](const Row& row, double right) { return row.call.contract.lse_base == LseBase::e ? right / std::numbers::ln2 : kNone; });
  all.lse("it were in base e",
          [](const Row& row, double right) { return row.call.contract.lse_base == LseBase::two ? right * std::numbers::ln2 : kNone; });
  all.lse("it counted the sink", [](const Row& row, double right) {
    const double top = std::max(right, row.right.sink);
    return row.call.contract.sink_in_lse || row.keys().n == 0 ? kNone
           : std::isinf(top)                                  ? top
                                                              : top + std::log1p(std::exp(std::min(right, row.right.sink) - top));
  });
  static constexpr auto kLargest = [](const Row& row) { return row.keys().n > 0 ? row.right.x.head(row.keys().n).maxCoeff() : kNone; };
  all.lse("it were the largest score", [](const Row& row, double) { return kLargest(row); });
  all.lse("the largest score were left out of it", [](const Row& row, double right) { return right - kLargest(row); });
  return all.causes;
}

std::string explain(const std::vector<Row>& rows, bool of_lse) {
  static const std::vector<Cause> kCauses = table();
  if (!of_lse && std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.got.isZero(0); })) return "zeros were written";
  Texts named;
  for (const Cause& cause : kCauses) {
    Texts texts = cause(rows[0], of_lse);
    for (size_t i = 1; i < rows.size() && !texts.empty(); ++i) {
      const Texts of_row = cause(rows[i], of_lse);
      std::erase_if(texts, [&](const std::string& text) { return std::find(of_row.begin(), of_row.end(), text) == of_row.end(); });
    }
    if (!texts.empty() && std::find(named.begin(), named.end(), texts[0]) == named.end()) named.push_back(texts[0]);
  }
  return named.empty() || named.size() > 3 ? "" : fmt::format("as if {}", fmt::join(named, ", or as if "));
}

/// What stands in out and in lse of all these rows, whatever the reason.
std::string in_common(const std::vector<Row>& rows, bool of_lse) {
  std::set<int32_t> channels;
  std::vector<double> factors, shifts, expected;
  for (const Row& row : rows) {
    Reread a = row.call.answer(row.right);
    for (int32_t d = 0; d < row.got.size(); ++d)
      if (!(std::fabs(row.got[d] - a.out[d]) <= 8 * a.sigma[d])) channels.insert(d);
    const double factor = row.got.dot(a.out) / a.out.squaredNorm();
    a.out *= factor, a.sigma *= std::fabs(factor);
    if (std::fabs(factor - 1) > 0.01 && row.is(a, false)) factors.push_back(factor);
    shifts.push_back(row.lse - row.stats.lse_expected), expected.push_back(row.stats.lse_expected);
  }
  const auto range = [](const std::vector<double>& of) {
    return std::pair(*std::min_element(of.begin(), of.end()), *std::max_element(of.begin(), of.end()));
  };
  if (of_lse) {
    const auto [least, most] = range(shifts);
    const bool constant = most - least < 0.1 * std::fabs(most);
    const auto [lowest, highest] = range(expected);  // where all are equal, what is off by a constant may be off by a factor
    return constant && highest > lowest + 1e-3 ? fmt::format("it is right but for {:+.2g}", most) : "";
  }
  if (factors.size() == rows.size()) {
    const auto [least, most] = range(factors);
    return most - least < 0.01 * std::fabs(most) ? fmt::format("right but for a factor of {:.3g}", most)
                                                 : fmt::format("right but for a factor a row, {:.3g} to {:.3g}", least, most);
  }
  const int32_t first = channels.empty() ? 0 : *channels.begin(), width = channels.empty() ? 0 : *channels.rbegin() - first + 1;
  const bool dense = width >= 4 && 2 * width <= rows[0].in().c.d_v && 4 * std::ssize(channels) >= 3 * width;
  return dense ? fmt::format("only channels {} to {} are wrong", first, first + width - 1) : "";
}

/// Of which rows alone something is wrong: all of them, and no other.
class Where {
 public:
  /// `n`: valid entries of its list.
  void add(const Inputs& in, int64_t t, int32_t h, int32_t n, bool wrong) {
    const int32_t k_t = in.k_t(t);
    const bool is[] = {n == 0, n < k_t, k_t < in.c.topk, k_t % 64 != 0, h % 2 == 1, t % in.c.s_q != 0};
    for (size_t i = 0; i < std::size(kKinds); ++i) {
      if (i > 0 && n == 0 && !wrong) continue;  // nothing can go wrong there
      exactly_[i] &= is[i] == wrong && (i == 0 || n > 0);
      ++rows_[i][wrong];
    }
  }
  std::string text() const {
    for (size_t i = 0; i < std::size(kKinds); ++i)
      if (exactly_[i] && rows_[i][0] >= 2 && rows_[i][1] >= 2) return fmt::format("exactly the rows {} are wrong", kKinds[i]);
    return "";
  }

 private:
  static constexpr const char* kKinds[] = {"without a key",  "with an entry that is no key",     "with K_t < topk", "with K_t no multiple of 64",
                                           "of an odd head", "of a request's later query tokens"};
  bool exactly_[std::size(kKinds)] = {true, true, true, true, true, true};
  int64_t rows_[std::size(kKinds)][2] = {};  // right and wrong
};

}  // namespace

Causes find_causes(const Inputs& in, const Contract& judged_by, bool split, const OracleBlock* block, std::span<const int64_t> tokens,
                   const CandidateRows& rows) {
  constexpr int32_t kLongest = 4096;  // of lists: each that is looked at takes 5 KiB an entry
  if (in.c.topk > kLongest) return {};
  const size_t most_tried = in.c.topk > 1024 ? 2 : 6;
  constexpr double kClear = 12;  // z of an element, or twice an lse's share of its limit: less may be anything
  Call call(in, judged_by, split);
  struct Found {
    int64_t t;
    int32_t h;
    RowStats stats;
    std::vector<float> out;
    double lse;
  };
  std::vector<Found> wrong[2];  // of out, of lse
  Where where[2];
  int32_t valid = 0;  // entries of the token's list
  for (int64_t row = 0; row < std::ssize(tokens) * in.c.h_q; ++row) {
    Found f{tokens[row / in.c.h_q], static_cast<int32_t>(row % in.c.h_q), {}, {}, rows.lse.empty() ? 0.0 : rows.lse[row]};
    if (f.h == 0) valid = static_cast<int32_t>(valid_slots(in, f.t).size());
    for (int32_t d = 0; d < in.c.d_v; ++d) f.out.push_back(static_cast<float>(decode16(rows.out[row * in.c.d_v + d], in.c.q_dtype)));
    f.stats = judge_row_of_family(block, row, in, f.t, f.h, judged_by, split, f.out, f.lse);
    if (judged_by.lse_base == LseBase::two) f.lse *= std::numbers::ln2;
    for (const bool of_lse : {false, true}) {
      const bool is_wrong = of_lse ? !f.stats.lse_ok() : !f.stats.out_ok();
      where[of_lse].add(in, f.t, f.h, valid, is_wrong);
      if (is_wrong && valid != 1) wrong[of_lse].push_back(f);  // of one key, whatever loses it leaves nothing
    }
  }
  Causes causes;
  for (const bool of_lse : {false, true}) {
    const std::vector<Found>& all = wrong[of_lse];
    const auto clear = [&](const Found& f) { return of_lse ? 2 * f.stats.lse_ratio : f.stats.n_nonfinite_mismatch > 0 ? kInf : f.stats.z_max; };
    const auto clearest = std::max_element(all.begin(), all.end(), [&](const Found& a, const Found& b) { return clear(a) < clear(b); });
    std::string& text = of_lse ? causes.lse : causes.out;
    if (all.size() >= 2 && clear(*clearest) >= kClear / 3) {
      std::vector<Row> tried;  // the clearest, and some from all over them
      const auto add = [&](const Found& f) { tried.emplace_back(call, f.t, f.h, f.stats, f.out, f.lse); };
      add(*clearest);
      for (size_t i = 0, n = std::min(most_tried, all.size()); i < n; ++i) add(all[i * all.size() / n]);
      if (clear(*clearest) >= kClear) text = explain(tried, of_lse);
      if (text.empty()) text = in_common(tried, of_lse);
    }
    if (text.empty() && std::ssize(tokens) == in.tokens()) text = where[of_lse].text();
  }
  return causes;
}

}  // namespace smla
