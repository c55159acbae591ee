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
#include "harness/roundings.h"
#include "reference/decode.h"
#include "reference/exact.h"

namespace smla {
namespace {

using Row = WrongRow;
constexpr double kInf = std::numeric_limits<double>::infinity(), kNone = std::numeric_limits<double>::quiet_NaN();

/// Clauses that give the kernel's answer in a row, the most telling first, and how near that is (WrongRow::misfit).
using Texts = std::vector<std::string>;
struct Fit {
  Texts texts;
  double misfit = 0;
  bool speaks = false;  // of this row; else it says nothing of it
};
/// A cause, tried on one row. `of_lse`: lse is what is to be explained. Of those of one `argument` that do alike the first is told: it is simpler.
struct Cause {
  const char* argument;
  std::function<Fit(const Row&, bool of_lse)> tried;
};
struct Place {
  int64_t t, h;
};

/// The kinds of causes. A function that they are given answers false, or what is no number, where the cause is none.
struct Table {
  std::vector<Cause> causes;

  void reads(const std::string& text, const std::function<bool(const Row&, Reading&)>& change, const char* argument = "") {
    causes.push_back({argument, [=](const Row& row, bool of_lse) -> Fit {
                        Reading r = row.right;
                        if (!change(row, r)) return {};
                        const Reread a = row.call.answer(r);
                        if (!row.is(a, of_lse)) return {{}, 0, true};
                        return {{text}, row.misfit(a, of_lse), true};
                      }});
  }
  void left_out(const char* text, int64_t (*slot)(const Inputs& in)) {
    reads(
        text,
        [=](const Row& row, Reading& r) {
          for (int64_t i = 0; i < row.keys().n; ++i) r.m[i] = row.keys().slot[i] != slot(row.in());
          return r.m != row.right.m;
        },
        "entry");
  }
  void scale(const char* text, double (*sm_scale)(const Case& c)) {
    const auto change = [=](const Row& row, Reading& r) { return r.x *= sm_scale(row.in().c) / static_cast<double>(row.in().c.sm_scale), true; };
    reads(text, change);
  }
  void sink(const char* text, double (*of)(const Row& row)) {
    reads(
        text, [=](const Row& row, Reading& r) { return r.sink = of(row), !row.in().sink.empty(); }, "sink");
  }
  /// The list ends before this position. What names a slot behind K_t counts, too, if it holds numbers.
  void end(const char* text, int32_t (*before)(const Row& row)) {
    reads(text, [=](const Row& row, Reading& r) {
      for (int64_t i = 0; i < r.m.size(); ++i) r.m[i] = row.keys().position[i] < before(row);
      const auto poisoned = [&](int32_t slot) { return row.in().is_valid(slot) && !row.call.holds_numbers(slot); };
      return r.m != row.right.m && std::none_of(row.list() + row.k_t(), row.list() + std::max(row.k_t(), before(row)), poisoned);
    });
  }
  /// Entries that name no slot are read as one; kNotRead: this one is not.
  static constexpr int64_t kNotRead = std::numeric_limits<int64_t>::min();
  void invalid(const char* text, int64_t (*slot)(int64_t entry, int64_t slots)) {
    reads(text, [=](const Row& row, Reading& r) {
      std::map<int64_t, double> times;
      for (int32_t p = 0; p < row.k_t(); ++p)
        if (!row.in().is_valid(row.list()[p])) ++times[slot(row.list()[p], row.in().num_slots)];
      times.erase(kNotRead);
      return !times.empty() && std::all_of(times.begin(), times.end(), [&](const auto& of) { return row.count(r, of.first, of.second); });
    });
  }
  /// Key i is read from another slot.
  void slots(const char* text, int64_t (*slot)(const Row& row, int64_t i)) {
    reads(text, [=](const Row& row, Reading& r) {
      Keys keys;
      for (int64_t i = 0; i < row.keys().n; ++i) {
        const int64_t read = slot(row, i);
        if (!row.call.holds_numbers(read)) return false;
        row.call.append(keys, static_cast<int32_t>(read));
      }
      if (std::equal(keys.slot.begin(), keys.slot.end(), row.keys().slot.begin())) return false;
      return row.replace(r, keys), true;
    });
  }
  /// Slots stand elsewhere: byte `offset` of the pool.
  void address(const char* text, int64_t (*offset)(const Inputs& in, int64_t slot)) {
    reads(text, [=](const Row& row, Reading& r) {
      const auto bytes = static_cast<size_t>(row.in().row_bytes);
      Keys keys;
      keys.slot.assign(row.keys().slot.begin(), row.keys().slot.begin() + row.keys().n);
      keys.bytes.resize(keys.slot.size() * bytes);
      for (size_t i = 0; i < keys.slot.size(); ++i)
        if (!row.call.bytes_at(offset(row.in(), keys.slot[i]), std::span(keys.bytes).subspan(i * bytes, bytes))) return false;
      if (std::equal(keys.bytes.begin(), keys.bytes.end(), row.keys().bytes.begin())) return false;
      return row.replace(r, keys), true;
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
    causes.push_back({"", [=](const Row& row, bool of_lse) -> Fit {
                        const Place at = place(row.in().c, row.t, row.h);
                        const auto h = static_cast<int32_t>(at.h);
                        if (at.t < 0 || at.t >= row.in().tokens() || h < 0 || h >= row.in().c.h_q || (at.t == row.t && h == row.h)) return {};
                        Texts texts;
                        double misfit = 0;
                        const auto tries = [&](const char* what, int64_t list, int64_t query, double its_sink) {
                          Reading r = row.call.reading(list, query, h);
                          r.sink = its_sink;
                          const Reread a = row.call.answer(r);
                          if (texts.empty() && row.is(a, of_lse)) texts.push_back(what + whose), misfit = row.misfit(a, of_lse);
                          return a;
                        };
                        const Reread its = tries("this were the answer to ", at.t, at.t, sink_of(row.in(), h));
                        if (texts.empty() && (of_lse ? row.stats.out_ok() && row.is_lse(its.lse) : row.is_out(its)))
                          texts.push_back((of_lse ? "this were the lse of " : "this were the out of ") + whose), misfit = row.misfit(its, of_lse);
                        tries("this, but for the sink, were the answer to ", at.t, at.t, row.right.sink);
                        if (h == row.h) tries("the list were that of ", at.t, row.t, row.right.sink);
                        tries("q were that of ", row.t, at.t, row.right.sink);
                        return {texts, misfit};
                      }});
  }
  void lse(const char* text, double (*value)(const Row& row, double right)) {
    causes.push_back({"", [=](const Row& row, bool of_lse) -> Fit {
                        const double other = of_lse ? value(row, row.stats.lse_expected) : kNone;
                        if (!row.is_lse(other)) return {};
                        return {{text}, row.misfit({{}, {}, other}, true)};
                      }});
  }
};

/// NaN where there is none.
double largest_score(const Row& row) { return row.keys().n > 0 ? row.right.x.head(row.keys().n).maxCoeff() : kNone; }

/// One entry left out or counted twice: got (Z + a e) = S + a e v with a = -1 or 1, so it is the entry with the least |S - got Z + a e (v - got)|.
Fit one_entry(const Row& row, bool of_lse) {
  const int64_t n = row.keys().n;
  if (n < 2) return {};
  const double top = largest_score(row);
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
    const Reread answer = row.call.answer(r);
    if ((a < 0 && (i == 0 || i == n - 1)) || !row.is(answer, of_lse)) continue;  // those are tried by name
    const char* what = a < 0 ? "were left out" : "counted twice";
    const int32_t position = row.keys().position[i], slot = row.keys().slot[i];
    return {{fmt::format("entry {}, which names slot {}, {}", position, slot, what),
             fmt::format("the entry of each list that names slot {} {}", slot, what), fmt::format("entry {} {}", position, what),
             fmt::format("one entry {}", what)},
            row.misfit(answer, of_lse)};
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
  all.left_out("slot 0 were invalid", [](const Inputs&) { return int64_t{0}; });
  all.left_out("the pool's last slot were invalid", [](const Inputs& in) { return in.num_slots - 1; });
  all.causes.push_back({"entry", one_entry});
  all.end("the list ended at its first invalid entry", [](const Row& row) {
    const auto is_invalid = [&](int32_t slot) { return !row.in().is_valid(slot); };
    return static_cast<int32_t>(std::find_if(row.list(), row.list() + row.k_t(), is_invalid) - row.list());
  });
  all.end("as many entries were read as are valid", [](const Row& row) { return static_cast<int32_t>(row.keys().n); });
  all.end("the last tile of 64 were left out", [](const Row& row) { return row.k_t() > 64 ? (row.k_t() - 1) / 64 * 64 : row.k_t(); });
  all.end("a topk_length of 0 were 1", [](const Row& row) { return std::max(row.k_t(), 1); });
  all.end("one entry behind topk_length counted", [](const Row& row) { return std::min(row.k_t() + 1, row.in().c.topk); });
  all.end("topk_length were rounded up to a whole tile of 64", [](const Row& row) { return std::min((row.k_t() + 63) / 64 * 64, row.in().c.topk); });
  all.end("topk_length were ignored", [](const Row& row) { return row.in().c.topk; });
  all.end("topk_length were the first query token's", [](const Row& row) { return row.in().k_t(0); });
  all.end("topk_length were indexed by request", [](const Row& row) { return row.in().k_t(row.t / row.in().c.s_q); });
  all.invalid("-1 were slot 0", [](int64_t entry, int64_t) { return entry == -1 ? 0 : Table::kNotRead; });
  all.invalid("-1 were the row before the pool", [](int64_t entry, int64_t) { return entry == -1 ? -1 : Table::kNotRead; });
  all.invalid("entries outside of the pool were taken modulo its slots",
              [](int64_t entry, int64_t slots) { return (entry % slots + slots) % slots; });
  all.invalid("entries beyond the pool were its last slot", [](int64_t entry, int64_t slots) { return entry < 0 ? Table::kNotRead : slots - 1; });
  all.invalid("entries beyond the pool were the row behind it", [](int64_t entry, int64_t slots) { return entry < 0 ? Table::kNotRead : slots; });
  all.slots("an entry's position were its slot", [](const Row& row, int64_t i) -> int64_t { return row.keys().position[i]; });
  all.reads("the first entry named slot 0", [](const Row& row, Reading& r) {
    if (row.k_t() == 0 || row.list()[0] == 0) return false;
    if (row.keys().n > 0 && row.keys().position[0] == 0) r.m[0] = 0;
    return row.count(r, 0, 1);
  });
  all.slots("slots were kept in 16 bits", [](const Row& row, int64_t i) -> int64_t { return row.keys().slot[i] & 0xffff; });
  all.slots("every four entries named slots in a row, from the first one's on", [](const Row& row, int64_t i) -> int64_t {
    const int32_t position = row.keys().position[i], first = row.list()[position / 4 * 4], slot = first + position % 4;
    return row.in().is_valid(first) && row.in().is_valid(slot) ? slot : row.keys().slot[i];
  });
  all.address("page_stride_bytes were ignored", [](const Inputs& in, int64_t slot) { return slot * in.row_bytes; });
  all.address("page_size were 64", [](const Inputs& in, int64_t slot) { return slot / 64 * in.page_stride_bytes + slot % 64 * in.row_bytes; });
  all.address("page_size were even", [](const Inputs& in, int64_t slot) {
    const int64_t page_size = (in.c.page_size + 1) / 2 * 2;
    return slot / page_size * in.page_stride_bytes + slot % page_size * in.row_bytes;
  });
  all.address("rows were 576 values wide", [](const Inputs& in, int64_t slot) {
    const int64_t row_bytes = in.c.kv_format == KvFormat::fp8_656 ? in.row_bytes : 2 * 576;
    return slot / in.c.page_size * in.page_stride_bytes + slot % in.c.page_size * row_bytes;
  });
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
  all.lse("it were rounded to bf16, which is not declared", [](const Row& row, double right) {
    const double unit = row.call.contract.lse_base == LseBase::two ? std::numbers::ln2 : 1;
    const auto rounded = [unit](double x) { return unit * static_cast<double>(widen(FloatType::bf16, to_bf16(static_cast<float>(x / unit)))); };
    if (row.call.contract.lse_dtype != LseType::f32 || row.keys().n == 0) return kNone;
    const double x = largest_score(row);
    return row.is_lse(rounded(x) + right - x) ? kNone : rounded(right);  // of one heavy key a rounded score does the same
  });
  all.lse("it were in base e",
          [](const Row& row, double right) { return row.call.contract.lse_base == LseBase::two ? right * std::numbers::ln2 : kNone; });
  all.lse("it counted the sink", [](const Row& row, double right) {
    const double top = std::max(right, row.right.sink);
    return row.call.contract.sink_in_lse || row.keys().n == 0 ? kNone
           : std::isinf(top)                                  ? top
                                                              : top + std::log1p(std::exp(std::min(right, row.right.sink) - top));
  });
  all.lse("it were the largest score", [](const Row& row, double) { return largest_score(row); });
  all.lse("the largest score were left out of it", [](const Row& row, double right) { return right - largest_score(row); });
  return all.causes;
}

/// What accounts for the wrong rows; `elsewhere`: and would have shown in some of the right ones.
std::string explain(const std::vector<Row>& wrong, const std::vector<Row>& right, bool of_lse, bool& elsewhere) {
  static const std::vector<Cause> kCauses = table();
  if (!of_lse && std::all_of(wrong.begin(), wrong.end(), [](const Row& row) { return row.got.isZero(0); })) return "zeros were written";
  struct Named {
    const Cause* cause;
    std::string text;
    double misfit;
  };
  std::vector<Named> named;
  for (const Cause& cause : kCauses) {
    Fit fit = cause.tried(wrong[0], of_lse);
    for (size_t i = 1; i < wrong.size() && !fit.texts.empty(); ++i) {
      const Fit of_row = cause.tried(wrong[i], of_lse);
      fit.misfit += of_row.misfit;
      std::erase_if(fit.texts,
                    [&](const std::string& text) { return std::find(of_row.texts.begin(), of_row.texts.end(), text) == of_row.texts.end(); });
    }
    if (!fit.texts.empty()) named.push_back({&cause, fit.texts[0], fit.misfit});
  }
  double least = kInf;
  for (const Named& one : named) least = std::min(least, one.misfit);
  Texts told, denied;  // by right rows
  std::set<std::string> arguments;
  for (const auto& [cause, text, misfit] : named) {
    if (misfit > 1.2 * least + 50) continue;  // 50: e^-25 as likely, of errors with one sigma
    if (*cause->argument != 0 && !arguments.insert(cause->argument).second) continue;
    const bool is_denied = std::any_of(right.begin(), right.end(), [&, tried = cause->tried](const Row& row) {
      const Fit fit = tried(row, of_lse);
      return fit.speaks && fit.texts.empty();
    });
    Texts& into = is_denied ? denied : told;
    if (std::find(into.begin(), into.end(), text) == into.end()) into.push_back(text);
  }
  elsewhere = told.empty();
  if (elsewhere) told = denied;
  return told.empty() || told.size() > 3 ? "" : fmt::format("as if {}", fmt::join(told, ", or as if "));
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

/// The rows that some answer got wrong.
struct Wrong {
  struct Row {
    int64_t t;
    int32_t h;
    RowStats stats;
    std::vector<float> out;
    double lse;
    /// z of an element, or twice an lse's share of its limit.
    double clear(bool of_lse) const { return of_lse ? 2 * stats.lse_ratio : stats.n_nonfinite_mismatch > 0 ? kInf : stats.z_max; }
  };
  std::vector<Row> rows[2];  // of out, of lse
  PooledRms pooled;
  std::vector<Row> of_pooled;  // a few of its rows, of which none is wrong
  std::vector<Row> right;      // a few from all over
  Where where[2];
  bool any[2] = {}, any_nan = false;
};

Wrong wrong_rows(const Inputs& in, const Contract& judged_by, bool split, const OracleBlock* block, std::span<const int64_t> tokens,
                 const CandidateRows& rows) {
  Wrong wrong;
  int32_t valid = 0;  // entries of the token's list
  const int64_t all = std::ssize(tokens) * in.c.h_q;
  for (int64_t row = 0; row < all; ++row) {
    Wrong::Row f{tokens[row / in.c.h_q], static_cast<int32_t>(row % in.c.h_q), {}, {}, rows.lse.empty() ? 0.0 : rows.lse[row]};
    if (f.h == 0) valid = static_cast<int32_t>(valid_slots(in, f.t).size());
    for (int32_t d = 0; d < in.c.d_v; ++d) f.out.push_back(static_cast<float>(decode16(rows.out[row * in.c.d_v + d], in.c.q_dtype)));
    f.stats = judge_row_of_family(block, row, in, f.t, f.h, judged_by, split, f.out, f.lse);
    if (judged_by.lse_base == LseBase::two) f.lse *= std::numbers::ln2;
    wrong.pooled.add(f.stats, in.c.d_v);
    if (f.stats.pooled && f.stats.out_ok() && wrong.of_pooled.size() < 4) wrong.of_pooled.push_back(f);
    if (f.stats.ok() && valid > 1 && row % std::max<int64_t>(1, all / 16) == 0) wrong.right.push_back(f);
    wrong.any_nan |= std::isnan(f.lse) || std::any_of(f.out.begin(), f.out.end(), [](float x) { return std::isnan(x); });
    for (const bool of_lse : {false, true}) {
      const bool is_wrong = of_lse ? !f.stats.lse_ok() : !f.stats.out_ok();
      wrong.any[of_lse] |= is_wrong;
      wrong.where[of_lse].add(in, f.t, f.h, valid, is_wrong);
      if (is_wrong && valid != 1) wrong.rows[of_lse].push_back(f);  // of one key, whatever loses it leaves nothing
    }
  }
  return wrong;
}

const Wrong::Row& clearest(const std::vector<Wrong::Row>& rows, bool of_lse) {
  return *std::max_element(rows.begin(), rows.end(), [&](const auto& a, const auto& b) { return a.clear(of_lse) < b.clear(of_lse); });
}
/// Some from all over them, `first` in front.
std::vector<Row> some_of(const std::vector<Wrong::Row>& rows, Call& call, const Wrong::Row* first = nullptr) {
  const size_t most = call.in.c.topk > 1024 ? 2 : 6;
  std::vector<Row> some;
  const auto add = [&](const Wrong::Row& f) { some.emplace_back(call, f.t, f.h, f.stats, f.out, f.lse); };
  if (first != nullptr) add(*first);
  for (size_t i = 0, n = std::min(most, rows.size()); i < n; ++i) add(rows[i * rows.size() / n]);
  return some;
}

Causes causes_of(const Wrong& wrong, Call& call, bool all_judged) {
  constexpr double kClear = 12;  // less may be anything
  Causes causes;
  for (const bool of_lse : {false, true}) {
    std::string& text = of_lse ? causes.lse : causes.out;
    const std::string where = all_judged ? wrong.where[of_lse].text() : "";
    if (const std::vector<Wrong::Row>& rows = wrong.rows[of_lse]; !rows.empty()) {
      const Wrong::Row& first = clearest(rows, of_lse);
      const std::vector<Row> tried = some_of(rows, call, &first);
      const double clear = rows.size() < 2 ? 0 : first.clear(of_lse);
      bool elsewhere = false;
      if (clear >= kClear) text = explain(tried, some_of(wrong.right, call), of_lse, elsewhere);
      if (!text.empty() && elsewhere) text = (where.empty() ? "in the wrong rows, and not in the right ones, " : where + ", ") + text;
      if (!of_lse && text.empty()) text = undeclared_rounding(tried);
      if (clear >= kClear / 3 && text.empty()) text = in_common(tried, of_lse);
    } else if (!of_lse && !wrong.pooled.ok()) {
      text = undeclared_rounding(some_of(wrong.of_pooled, call));
    }
    if (text.empty()) text = where;
  }
  return causes;
}

}  // namespace

Causes find_causes(const Inputs& in, const Contract& judged_by, bool split, const OracleBlock* block, std::span<const int64_t> tokens,
                   const CandidateRows& rows, const Refilled* refilled) {
  constexpr int32_t kLongest = 4096;  // of lists: each that is looked at takes 5 KiB an entry
  if (in.c.topk > kLongest) return {};
  const Wrong wrong = wrong_rows(in, judged_by, split, block, tokens, rows);
  const bool all_judged = std::ssize(tokens) == in.tokens();
  Call call(in, judged_by, split);
  Causes causes = causes_of(wrong, call, all_judged);
  if (refilled == nullptr || !wrong.any_nan) return causes;
  const Wrong still = wrong_rows(refilled->in, judged_by, split, block, tokens, refilled->rows);
  Call refilled_call(refilled->in, judged_by, split);
  const Causes then = causes_of(still, refilled_call, all_judged);
  for (const bool of_lse : {false, true}) {
    std::string& text = of_lse ? causes.lse : causes.out;
    const std::string& again = of_lse ? then.lse : then.out;
    const auto names_one = [](const std::string& one) { return one.find("as if") != one.npos; };
    if (names_one(text)) continue;
    if (wrong.any[of_lse] && !still.any[of_lse]) text = "right where unselected memory holds numbers: it is read, and must not be";
    else if (names_one(again)) text = "where unselected memory holds numbers, " + again;
  }
  return causes;
}

}  // namespace smla
