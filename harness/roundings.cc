// SPDX-License-Identifier: Apache-2.0
#include "harness/roundings.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "cases/kv_format.h"
#include "kernels/cpu/number.h"

namespace smla {
namespace {

using Eigen::VectorXd;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kTile = 64;

double rounded_to(Rounding type, double x, FloatType q_dtype) {
  return type == Rounding::exact || type == Rounding::fp32 ? x : static_cast<double>(cpu::rounded(static_cast<float>(x), type, q_dtype));
}

/// What is rounded.
struct Roundings {
  Rounding p = Rounding::exact, product = Rounding::exact, acc = Rounding::exact, part = Rounding::exact, score = Rounding::exact;
  double p_scale = 1;
  bool p_truncated = false, out_truncated = false, sum_of_rounded_p = false;
  std::function<void(const WrongRow&, Reading&)> change;  // of what is read
};
/// How the work is laid out.
struct Layout {
  int64_t splits;
  bool folds_scales;  // of fp8_656, into P
};

class Model {
 public:
  Model(const WrongRow& row, const Roundings& roundings, Layout layout)
      : row_(row), in_(row.in()), type_(in_.c.q_dtype), u_(roundings), layout_(layout) {
    reading_ = row.right;
    if (u_.change) u_.change(row, reading_);
    for (double& x : reading_.x) x = round(x, u_.score);
  }

  /// As it is stored.
  VectorXd out() const {
    const int64_t tiles = (row_.k_t() + kTile - 1) / kTile, d_v = in_.c.d_v;
    std::vector<VectorXd> parts;
    std::vector<double> lses;
    double top = reading_.sink;
    for (int64_t split = 0; split < layout_.splits; ++split) {
      double lse = -kInf;
      VectorXd part = attend(tiles * split / layout_.splits, tiles * (split + 1) / layout_.splits, lse);
      if (lse == -kInf) continue;
      if (layout_.splits > 1) each(part, u_.part);
      parts.push_back(std::move(part)), lses.push_back(lse), top = std::max(top, lse);
    }
    VectorXd sum = VectorXd::Zero(d_v);
    double weights = std::exp(reading_.sink - top);
    for (size_t i = 0; i < parts.size(); ++i) {
      const double weight = std::exp(lses[i] - top);
      sum += weight * parts[i];
      weights += weight;
    }
    sum /= weights;
    for (double& value : sum) value = u_.out_truncated ? truncated(value) : round(value, Rounding::q);
    return sum;
  }

 private:
  double round(double x, Rounding type) const { return rounded_to(type, x, type_); }
  void each(VectorXd& values, Rounding type) const {
    for (double& value : values) value = round(value, type);
  }
  /// Towards zero, to q's type.
  double truncated(double x) const {
    const double nearest = round(x, Rounding::q);
    if (std::fabs(nearest) <= std::fabs(x)) return nearest;
    const auto code = cpu::to_16(type_, static_cast<float>(nearest));
    return cpu::from_16(type_, static_cast<uint16_t>(code - 1));
  }
  double rounded_p(double p) const {
    p *= u_.p_scale;
    return (u_.p_truncated ? truncated(p) : round(p, u_.p)) / u_.p_scale;
  }

  /// Normalised.
  VectorXd attend(int64_t tile, int64_t end, double& lse) const {
    const Keys& keys = row_.keys();
    VectorXd acc = VectorXd::Zero(in_.c.d_v);
    double m = -kInf, sum = 0;
    for (; tile < end; ++tile) {
      const auto first = std::lower_bound(keys.position.begin(), keys.position.begin() + keys.n, tile * kTile);
      const auto last = std::lower_bound(first, keys.position.begin() + keys.n, (tile + 1) * kTile);
      const int64_t begin = first - keys.position.begin(), n = last - first;
      if (n == 0) continue;
      const double old = m;
      m = std::max(m, reading_.x.segment(begin, n).maxCoeff());
      const double factor = old == -kInf ? 0 : std::exp(old - m);
      VectorXd p = (reading_.x.segment(begin, n).array() - m).exp();
      acc *= factor, sum *= factor;
      if (!u_.sum_of_rounded_p) sum += p.sum();
      acc += weighed(p, begin, n);
      if (u_.sum_of_rounded_p) sum += p.unaryExpr([&](double x) { return rounded_p(x); }).sum();
      each(acc, u_.acc);
    }
    if (sum > 0) lse = m + std::log(sum), acc /= sum;
    return acc;
  }

  VectorXd weighed(const VectorXd& p, int64_t begin, int64_t n) const {
    const auto v = reading_.v.middleRows(begin, n);
    const int64_t group = layout_.folds_scales ? Fp8Row656::kGroup : in_.c.d_v;
    VectorXd out(in_.c.d_v);
    for (int64_t d = 0; d < in_.c.d_v; d += group) {
      VectorXd scale = VectorXd::Ones(n);
      if (layout_.folds_scales) {
        for (int64_t i = 0; i < n; ++i) scale[i] = fp8_scale(begin + i, d / group);
        int exponent = 0;
        std::frexp(scale.maxCoeff(), &exponent);
        scale *= std::ldexp(1.0, -exponent);
      }
      const VectorXd weights = p.cwiseProduct(scale).unaryExpr([&](double x) { return rounded_p(x); }).cwiseQuotient(scale);
      const auto columns = v.middleCols(d, group);
      if (u_.product == Rounding::exact) out.segment(d, group) = columns.transpose() * weights;
      else
        out.segment(d, group) =
            (columns.array().colwise() * weights.array()).unaryExpr([&](double x) { return round(x, u_.product); }).colwise().sum().transpose();
    }
    return out;
  }
  double fp8_scale(int64_t key, int64_t group) const {
    float scale;
    std::memcpy(&scale, row_.keys().bytes.data() + key * in_.row_bytes + Fp8Row656::kScaleOff + 4 * group, sizeof scale);
    return scale;
  }

  const WrongRow& row_;
  const Inputs& in_;
  const FloatType type_;
  const Roundings& u_;
  const Layout layout_;
  Reading reading_;
};

Roundings declared(const Contract& c) {
  Roundings u;
  u.p = c.p, u.p_scale = static_cast<double>(c.p_scale), u.part = c.part, u.sum_of_rounded_p = c.row_sum == RowSum::rounded;
  return u;
}

struct Hypothesis {
  std::string text;
  Roundings roundings;
};

/// q, or sm_scale q where that is what is rounded.
void round_q(const WrongRow& row, Reading& r, const std::function<double(double q, double largest)>& rounded, double sm_scale) {
  const Case& c = row.in().c;
  std::vector<uint16_t> bits(static_cast<size_t>(c.d_qk));
  q_row(row.in(), row.t, row.h, bits.data());
  VectorXd q(c.d_qk);
  for (int32_t d = 0; d < c.d_qk; ++d) q[d] = static_cast<double>(cpu::from_16(c.q_dtype, bits[static_cast<size_t>(d)]));
  const double largest = q.cwiseAbs().maxCoeff();
  for (double& value : q) value = rounded(value, largest);
  r.x = row.keys().k * q * sm_scale;
}

std::vector<Hypothesis> hypotheses(const Contract& contract, const Case& c) {
  const Roundings base = declared(contract);
  const auto u = [&](Rounding type) { return unit_roundoff(type, c.q_dtype); };
  const auto rounded = [q = c.q_dtype](double x, Rounding type) { return rounded_to(type, x, q); };
  std::vector<Hypothesis> all;
  const auto add = [&](const std::string& text, const auto& change) {
    change(all.emplace_back(Hypothesis{text + ", which is not declared", base}).roundings);
  };
  const double sm_scale = static_cast<double>(c.sm_scale);
  for (const Rounding type : {Rounding::bf16, Rounding::fp16}) {
    const std::string to = type == Rounding::bf16 ? " rounded to bf16" : " rounded to fp16";
    if (u(type) > u(contract.p)) add("P were" + to, [&](Roundings& r) { r.p = type, r.p_scale = 1; });
    if (u(type) > u(contract.part)) add("partials of splits were" + to, [&](Roundings& r) { r.part = type; });
    add("the running output were" + to + " after each tile", [&](Roundings& r) { r.acc = type; });
    add("products of P and V were" + to, [&](Roundings& r) { r.product = type; });
    add("scores were" + to, [&](Roundings& r) { r.score = type; });
    add("scores were" + to, [&](Roundings& r) {  // before sm_scale
      r.change = [=](const WrongRow&, Reading& reading) {
        for (double& x : reading.x) x = sm_scale * rounded(x / sm_scale, type);
      };
    });
    if (u(type) > u(contract.k) || u(type) > u(contract.v))
      add("K and V were" + to, [&](Roundings& r) {
        r.change = [=](const WrongRow& row, Reading& reading) {
          const RowMatrixXd k = row.keys().k.unaryExpr([&](double x) { return rounded(x, type); });
          reading.x = row.call.scores(k, row.t, row.h), reading.v = k.leftCols(row.in().c.d_v);
        };
      });
  }
  if (u(Rounding::e4m3) > u(contract.p))
    for (const double scale : {1.0, 256.0, 448.0}) add("P were rounded to e4m3", [&](Roundings& r) { r.p = Rounding::e4m3, r.p_scale = scale; });
  if (u(Rounding::e4m3) > u(contract.q))
    for (const bool power_of_two : {true, false})
      add("q were rounded to e4m3", [&](Roundings& r) {
        r.change = [=](const WrongRow& row, Reading& reading) {
          const auto to_e4m3 = [&](double q, double largest) {
            int exponent = 0;
            std::frexp(largest / 448, &exponent);
            const double scale = power_of_two ? std::ldexp(1.0, exponent) : largest / 448;
            return rounded(q / scale, Rounding::e4m3) * scale;
          };
          round_q(row, reading, to_e4m3, sm_scale);
        };
      });
  add("q times sm_scale were rounded to q's type", [&](Roundings& r) {
    r.change = [=](const WrongRow& row, Reading& reading) {
      round_q(
          row, reading, [&](double q, double) { return rounded(q * sm_scale, Rounding::q); }, 1);
    };
  });
  add("sm_scale were rounded to bf16",
      [&](Roundings& r) { r.change = [=](const WrongRow&, Reading& reading) { reading.x *= rounded(sm_scale, Rounding::bf16) / sm_scale; }; });
  add("P were truncated, not rounded", [](Roundings& r) { r.p_truncated = true; });
  add("out were truncated, not rounded", [](Roundings& r) { r.out_truncated = true; });
  if (contract.row_sum == RowSum::exact) add("the row sum added the rounded P", [](Roundings& r) { r.sum_of_rounded_p = true; });
  return all;
}

/// Sum of squares of what the kernel's answers miss the model's by, in units of sigma, in the layout that they are nearest to; inf above `most`.
/// `scaled`: the model's times whatever factor fits a row best.
double missed(const std::vector<WrongRow>& rows, const std::vector<VectorXd>& sigma, const Roundings& roundings, const std::vector<Layout>& layouts,
              double most, bool scaled = false) {
  double least = kInf;
  for (const Layout& layout : layouts) {
    double sum = 0;
    for (size_t i = 0; i < rows.size() && sum < std::min(most, least); ++i) {
      const VectorXd got = rows[i].got.cwiseQuotient(sigma[i]), out = Model(rows[i], roundings, layout).out().cwiseQuotient(sigma[i]);
      sum += (got - (scaled && !out.isZero(0) ? got.dot(out) / out.squaredNorm() : 1) * out).squaredNorm();
    }
    least = std::min(least, sum);
  }
  return least < most ? least : kInf;
}

}  // namespace

std::string undeclared_rounding(const std::vector<WrongRow>& rows) {
  const WrongRow& any = rows.front();
  const Case& c = any.in().c;
  int64_t tiles = 1;
  std::vector<VectorXd> sigma;
  for (const WrongRow& row : rows) {
    if (!row.got.allFinite() || row.keys().n == 0) return "";
    sigma.push_back(row.call.answer(row.right).sigma);
    tiles = std::max(tiles, (row.k_t() + kTile - 1) / kTile);
  }
  std::vector<Layout> layouts;
  for (int64_t splits = 1; splits <= (any.call.split() ? std::min<int64_t>(tiles, 16) : 1); ++splits)
    for (int folds = 0; folds <= (c.kv_format == KvFormat::fp8_656); ++folds) layouts.push_back({splits, folds == 1});

  // What nothing else need account for: neither no rounding at all, nor what is declared and a factor, as too large a row sum leaves it.
  const double exact = missed(rows, sigma, {}, {{1, false}}, kInf),
               most = std::min(exact / 5, missed(rows, sigma, declared(any.call.contract), layouts, kInf, true) / 3);
  const VectorXd right = Model(any, {}, {1, false}).out();
  const double observed = (any.got - right).cwiseQuotient(sigma[0]).squaredNorm();
  std::vector<std::pair<double, std::string>> fitting;
  for (const Hypothesis& h : hypotheses(any.call.contract, c)) {
    const double ratio = (Model(any, h.roundings, layouts.back()).out() - right).cwiseQuotient(sigma[0]).squaredNorm() / observed;
    if (ratio < 0.125 || ratio > 8) continue;  // in another layout it would be of about that size, too
    if (const double left = missed(rows, sigma, h.roundings, layouts, most); left < most) fitting.emplace_back(left, h.text);
  }
  if (fitting.empty()) return "";
  const auto best = *std::min_element(fitting.begin(), fitting.end());
  const bool alone = std::all_of(fitting.begin(), fitting.end(), [&](const auto& f) { return f.second == best.second || f.first > 2 * best.first; });
  return alone ? "as if " + best.second : "";
}

}  // namespace smla
