// SPDX-License-Identifier: Apache-2.0
#include "harness/reread.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/decode.h"

namespace smla {
namespace {

using Eigen::VectorXd;
constexpr double kInf = std::numeric_limits<double>::infinity();

bool is_nearer(double other, double right) { return right > 6 ? 3 * other < right : other < right; }

}  // namespace

bool Call::is_selected(int64_t slot) const { return std::binary_search(in.selected.begin(), in.selected.end(), slot); }

bool Call::holds_numbers(int64_t slot) const {
  const bool everywhere = in.variant.poison == Poison::numbers && in.c.pattern != Pattern::far;  // of a far pool little more than rows is there
  return is_selected(slot) || (everywhere && slot >= -1 && slot <= in.num_slots);
}

void Call::row(int64_t slot, uint8_t* bytes) const {
  if (is_selected(slot)) kv_row(in, slot, bytes);
  else poison_row(in, slot, bytes);
}

void Call::append(Keys& keys, int32_t slot) const {
  keys.slot.push_back(slot);
  keys.bytes.resize(keys.slot.size() * static_cast<size_t>(in.row_bytes));
  row(slot, keys.bytes.data() + keys.bytes.size() - in.row_bytes);
}

bool Call::bytes_at(int64_t offset, std::span<uint8_t> bytes) const {
  const int64_t rows_bytes = in.c.page_size * in.row_bytes;
  std::vector<uint8_t> piece;
  for (size_t done = 0; done < bytes.size();) {
    const int64_t at = offset + static_cast<int64_t>(done), page = at / in.page_stride_bytes, in_page = at % in.page_stride_bytes;
    if (at < 0 || page >= in.num_pages) return false;
    const bool is_row = in_page < rows_bytes;
    const int64_t slot = page * in.c.page_size + in_page / in.row_bytes;
    if (is_row ? !holds_numbers(slot) : in.variant.poison != Poison::numbers) return false;
    piece.resize(static_cast<size_t>(is_row ? in.row_bytes : in.page_stride_bytes - rows_bytes));
    if (is_row) row(slot, piece.data());
    else poison_bytes(in.variant.poison, tail_salt(in, page), piece.data(), std::ssize(piece));
    const auto from = static_cast<size_t>(is_row ? in_page % in.row_bytes : in_page - rows_bytes),
               n = std::min(piece.size() - from, bytes.size() - done);
    std::copy_n(piece.begin() + static_cast<int64_t>(from), n, bytes.begin() + static_cast<int64_t>(done));
    done += n;
  }
  return true;
}

void Call::decode(Keys& keys) const {
  keys.k.resize(std::ssize(keys.slot), in.c.d_qk);
  for (int64_t i = 0; i < keys.k.rows(); ++i) decode_row(in.c, keys.bytes.data() + i * in.row_bytes, keys.k.row(i).data());
}

const Keys& Call::list(int64_t t) {
  const auto [found, fresh] = lists_.try_emplace(t);
  Keys& keys = found->second;
  for (int32_t p = 0; fresh && p < in.c.topk; ++p) {
    const int32_t slot = in.indices[t * in.c.topk + p];
    if (!in.is_valid(slot) || !holds_numbers(slot)) continue;
    keys.position.push_back(p);
    keys.n += p < in.k_t(t);
    append(keys, slot);
  }
  if (fresh) decode(keys);
  return keys;
}

VectorXd Call::scores(const RowMatrixXd& k, int64_t t, int32_t h) const {
  std::vector<uint16_t> bits(in.c.d_qk);
  VectorXd q(in.c.d_qk);
  q_row(in, t, h, bits.data());
  decode16(bits.data(), in.c.q_dtype, in.c.d_qk, q.data());
  return k * q * static_cast<double>(in.c.sm_scale);
}

Reading Call::reading(int64_t t, int64_t q_t, int32_t h) {
  const Keys& keys = list(t);
  Reading r{scores(keys.k, q_t, h), VectorXd::Zero(keys.k.rows()), keys.k.leftCols(in.c.d_v), sink_of(in, h)};
  r.m.head(keys.n).setOnes();
  return r;
}

Reread Call::answer(const Reading& r) const {
  Reread a{VectorXd::Zero(in.c.d_v), VectorXd::Constant(in.c.d_v, out_underflow(in.c.q_dtype)), contract.sink_in_lse ? r.sink : -kInf};
  const auto counts = r.m.array() > 0;
  if (!counts.any()) return a;
  const double top = counts.select(r.x, -kInf).maxCoeff();
  const VectorXd e = counts.select(r.m.array() * (r.x.array() - top).min(0).exp(), 0.0);
  a.lse = top + std::log(e.sum() + std::exp(a.lse - top));
  const VectorXd p = e / (e.sum() + std::exp(r.sink - top));
  a.out = r.v.transpose() * p;
  const Roundoff u(contract, in.c, split_);
  const RowMatrixXd squares = r.v.array().square().matrix().transpose();
  const VectorXd var3 = (u.p * u.p + u.v * u.v + u.part * u.part) * (squares * p.array().square().matrix()) +
                        (u.out * u.out + u.part * u.part) * a.out.array().square().matrix() +
                        std::pow(p_underflow(contract, in.c) * p.maxCoeff(), 2) * squares.rowwise().sum();
  a.sigma = a.sigma.array().max((var3 / 3).array().sqrt());
  return a;
}

WrongRow::WrongRow(Call& of, int64_t token, int32_t head, const RowStats& judged, std::span<const float> out, double its_lse)
    : call(of),
      t(token),
      h(head),
      stats(judged),
      got(Eigen::Map<const Eigen::VectorXf>(out.data(), std::ssize(out)).cast<double>()),
      lse(its_lse),
      right(of.reading(token, token, head)),
      off_right_(off(of.answer(right))) {}

double WrongRow::off(const Reread& a) const { return std::sqrt(((got - a.out).array() / a.sigma.array()).square().mean()); }

bool WrongRow::is_out(const Reread& a) const {
  const double off_it = off(a);
  const bool within = off_it <= 2.5 && ((got - a.out).array().abs() <= 8 * a.sigma.array()).all();
  return within && (stats.out_ok() || is_nearer(off_it, off_right_));
}

bool WrongRow::is(const Reread& a, bool of_lse) const {
  return is_out(a) && ((!stats.lse_ok() && !of_lse) || call.contract.lse_dtype == LseType::none || is_lse(a.lse));
}

double WrongRow::lse_limit(double other) const {
  const bool known = stats.lse_ratio > 0 && std::isfinite(stats.lse_ratio);
  return known ? stats.lse_err / stats.lse_ratio : 1e-5 * (1 + std::fabs(other));
}

double WrongRow::misfit(const Reread& a, bool of_lse) const {
  if (!of_lse) return std::pow(off(a), 2) * static_cast<double>(got.size());
  return a.lse == lse ? 0 : std::pow((a.lse - lse) / lse_limit(a.lse), 2);
}

bool WrongRow::is_lse(double other) const {
  if (other == lse) return true;
  const double limit = lse_limit(other), off_it = std::fabs(other - lse);
  if (!stats.lse_ok() && std::fabs(other - stats.lse_expected) <= limit) return false;  // what is right itself is no cause
  return off_it <= 2 * limit && (stats.lse_ok() || is_nearer(off_it / limit, stats.lse_ratio));
}

bool WrongRow::count(Reading& r, int64_t slot, double times) const {
  if (!call.holds_numbers(slot)) return false;
  Keys one;
  call.append(one, static_cast<int32_t>(slot));
  call.decode(one);
  count(r, call.scores(one.k, t, h)[0], one.k.leftCols(in().c.d_v), times);
  return true;
}

void WrongRow::replace(Reading& r, Keys& keys) const {
  call.decode(keys);
  r = {call.scores(keys.k, t, h), VectorXd::Ones(keys.k.rows()), keys.k.leftCols(in().c.d_v), r.sink};
}

void WrongRow::count(Reading& r, double x, const RowMatrixXd& v, double times) {
  const int64_t n = r.x.size();
  r.x.conservativeResize(n + 1), r.m.conservativeResize(n + 1), r.v.conservativeResize(n + 1, v.cols());
  r.x[n] = x, r.m[n] = times, r.v.row(n) = v.row(0);
}

}  // namespace smla
