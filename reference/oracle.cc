// SPDX-License-Identifier: Apache-2.0
// One token is three steps, each cut into tasks of a fixed size, so that no result depends on the number of threads:
//   score   kKeys keys      decode K, X = sm_scale Q K^T                                              (W = sm_scale^2 Q^2 K^2^T if Q or K is rounded)
//   soften  one head        softmax of a row of X; the left operands P and L = [m P^2; m P^2 sx^2 ...], without the sink
//   weigh   kColumns of V   out = P V, [A; B ...] = L V^2, times what the sink leaves               (C = P V^2, k_mean = P K if Q is rounded)
#include "reference/oracle.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "reference/decode.h"
#include "reference/parallel.h"

namespace smla {
namespace {

constexpr int64_t kKeys = 256, kColumns = 128;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The cached bytes of every slot that the block's tokens attend, each generated once.
struct Rows {
  std::vector<int32_t> slots;  // sorted, distinct
  std::vector<uint8_t> bytes;  // [slots][row_bytes]
  int64_t find(int32_t slot) const { return std::lower_bound(slots.begin(), slots.end(), slot) - slots.begin(); }
};

Rows generate_rows(const Inputs& in, const std::vector<std::vector<int32_t>>& lists, int threads) {
  Rows rows;
  for (const auto& list : lists) rows.slots.insert(rows.slots.end(), list.begin(), list.end());
  std::sort(rows.slots.begin(), rows.slots.end());
  rows.slots.erase(std::unique(rows.slots.begin(), rows.slots.end()), rows.slots.end());
  const auto count = static_cast<int64_t>(rows.slots.size());
  rows.bytes.resize(count * in.row_bytes);
  parallel_for(threads, (count + kKeys - 1) / kKeys, [&](int64_t task, int) {
    for (int64_t i = task * kKeys; i < std::min(count, (task + 1) * kKeys); ++i) kv_row(in, rows.slots[i], &rows.bytes[i * in.row_bytes]);
  });
  return rows;
}

/// Memory of one token's arithmetic, for up to max_n keys; used again for the next token.
struct Scratch {
  RowMatrixXd Q, K;            // [h_q][d_qk], [n][d_qk]
  RowMatrixXd X, W, P, L;      // [h_q][n], [h_q][n], [h_q][n], [(1 + scores) h_q][n]
  Eigen::VectorXd q2, k2;      // |q|^2 [h_q], |k|^2 [n]
  Eigen::ArrayXd keep;         // [h_q]: what the sink leaves of every weight
  std::vector<int64_t> entry;  // [n]: of Rows
  Eigen::ArrayXd m;            // [n]: how often the row names the slot
  Scratch(const Case& c, int64_t max_n, int64_t num_scores, bool rounded)
      : Q(c.h_q, c.d_qk),
        K(max_n, c.d_qk),
        X(c.h_q, max_n),
        W(rounded ? c.h_q : 0, max_n),
        P(c.h_q, max_n),
        L((1 + num_scores) * c.h_q, max_n),
        q2(c.h_q),
        k2(max_n),
        keep(c.h_q),
        m(max_n) {}
};

class Token {
 public:
  Token(const Inputs& in, const Rows& rows, const std::vector<int32_t>& list, int64_t i, OracleBlock& block, Scratch& s)
      : in_(in), rows_(rows), i_(i), n_(static_cast<int64_t>(list.size())), h_q_(in.c.h_q), block_(block), s_(s) {
    s.entry.resize(n_);
    for (int64_t k = 0; k < n_; ++k) s.entry[k] = rows.find(list[k]);
    std::vector<int64_t> sorted = s.entry;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t k = 0; k < n_; ++k) {
      const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), s.entry[k]);
      s.m[k] = static_cast<double>(last - first);
    }
    std::vector<uint16_t> bits(in.c.d_qk);
    for (int32_t h = 0; h < h_q_; ++h) {
      q_row(in, block.tokens[i], h, bits.data());
      decode16(bits.data(), in.c.q_dtype, in.c.d_qk, s.Q.row(h).data());
      s.q2[h] = s.Q.row(h).squaredNorm();
    }
  }

  void score(int64_t task) {
    const int64_t first = task * kKeys, count = std::min(kKeys, n_ - first);
    for (int64_t k = first; k < first + count; ++k) {
      decode_row(in_.c, &rows_.bytes[s_.entry[k] * in_.row_bytes], s_.K.row(k).data());
      s_.k2[k] = s_.K.row(k).squaredNorm();
    }
    const auto K = s_.K.middleRows(first, count);
    const double sm_scale = in_.c.sm_scale;
    s_.X.middleCols(first, count).noalias() = sm_scale * s_.Q * K.transpose();
    if (s_.W.rows() > 0) s_.W.middleCols(first, count).noalias() = sm_scale * sm_scale * s_.Q.cwiseAbs2() * K.cwiseAbs2().transpose();
  }

  void soften(int64_t h) {
    const int64_t row = i_ * h_q_ + h;
    const auto x = s_.X.row(h).head(n_);
    auto p = s_.P.row(h).head(n_), mp2 = s_.L.row(h).head(n_);
    const double x_max = x.maxCoeff();
    for (int64_t k = 0; k < n_; ++k) p[k] = std::exp(x[k] - x_max);
    const double sum = p.sum(), lse = x_max + std::log(sum);
    p /= sum;
    const double sink = in_.sink.empty() ? -kInfinity : in_.sink[h];
    const double keep = s_.keep[h] = 1 / (1 + std::exp(sink - lse));  // what the sink leaves of every weight

    const double sm_scale = in_.c.sm_scale, q2 = s_.q2[h] * sm_scale * sm_scale;
    for (int64_t index = 0; index < std::ssize(block_.scores); ++index) {
      auto& scores = block_.scores[index];
      ScoreError own = scores.error;  // of each key: an error of q is common to all
      own.u_q = 0;
      auto mp2sx2 = s_.L.row((1 + index) * h_q_ + h).head(n_);
      double lse_var = 0;
      bool beyond = false;
      for (int64_t k = 0; k < n_; ++k) {
        const double norm2 = q2 * s_.k2[k], w = scores.error.rounded() ? s_.W(h, k) : 0, mp2_k = s_.m[k] * p[k] * p[k];
        const double sx2 = scores.error.sx2(norm2, w, x[k], in_.c.d_qk);
        lse_var += mp2_k * (own == scores.error ? sx2 : own.sx2(norm2, w, x[k], in_.c.d_qk));
        mp2sx2[k] = mp2_k * sx2;
        beyond |= sx2 > 0.04 && p[k] * std::exp(3 * std::sqrt(sx2)) > 0.02;
      }
      scores.lse_var[row] = lse_var;
      scores.b[row] = keep * keep * mp2sx2.sum();
      scores.beyond[row] = beyond;
    }
    mp2 = s_.m.head(n_).transpose() * p.array().square();
    block_.n[row] = static_cast<double>(n_);
    block_.x_max[row] = x_max;
    block_.lse[row] = lse;
    block_.sum_pt2[row] = mp2.sum();
    block_.pt_max[row] = p.maxCoeff();
    block_.p_max[row] = keep * block_.pt_max[row];
    double lost = 0;  // by weights that lie within half an ulp of the row sum of 0 or of the largest weight
    for (int64_t k = 0; k < n_; ++k) {
      const double distance = std::min(p[k], block_.pt_max[row] - p[k]);
      if (distance <= 0x1p-24) lost += distance;
    }
    block_.lost[row] = lost;
  }

  void weigh(int64_t task) {
    const int64_t first = task * kColumns, count = std::min<int64_t>(kColumns, block_.d_v - first);
    const auto V = s_.K.block(0, first, n_, count);
    RowMatrixXd V2(std::min(n_, kKeys), count), sums2 = RowMatrixXd::Zero(s_.L.rows(), count);
    RowMatrixXd sums_C = RowMatrixXd::Zero(block_.C.rows() > 0 ? h_q_ : 0, count);
    std::vector<double> sum(count), sum_v2(count), low(count, kInfinity), high(count, -kInfinity);
    for (int64_t begin = 0; begin < n_; begin += kKeys) {  // V^2 stays in the cache from here to its product
      const int64_t keys = std::min(kKeys, n_ - begin);
      for (int64_t k = 0; k < keys; ++k) {
        const double *v = &V(begin + k, 0), m = s_.m[begin + k];
        double* v2 = &V2(k, 0);
        for (int64_t d = 0; d < count; ++d) {
          v2[d] = v[d] * v[d];
          sum[d] += v[d];
          sum_v2[d] += m * v2[d];
          low[d] = v[d] < low[d] ? v[d] : low[d];
          high[d] = v[d] > high[d] ? v[d] : high[d];
        }
      }
      sums2.noalias() += s_.L.middleCols(begin, keys) * V2.topRows(keys);
      if (sums_C.rows() > 0) sums_C.noalias() += s_.P.middleCols(begin, keys) * V2.topRows(keys);
    }
    for (int64_t d = 0; d < count; ++d) {
      block_.v_mean(i_, first + d) = sum[d] / static_cast<double>(n_);
      block_.sum_v2(i_, first + d) = sum_v2[d];
      block_.v_min(i_, first + d) = low[d];
      block_.v_max(i_, first + d) = high[d];
    }

    const auto store = [&](RowMatrixXd& M, const auto& product, const auto& factor) {
      M.block(i_ * h_q_, first, h_q_, count) = factor.matrix().asDiagonal() * product;
    };
    const RowMatrixXd sums = s_.P.leftCols(n_) * V;
    store(block_.out, sums, s_.keep);
    store(block_.A, sums2.topRows(h_q_), s_.keep.square());
    for (int64_t index = 0; index < std::ssize(block_.scores); ++index)
      store(block_.scores[index].B, sums2.middleRows((1 + index) * h_q_, h_q_), s_.keep.square());
    if (block_.C.rows() > 0) store(block_.C, sums_C, s_.keep);
  }

  /// `threads` > 1 only where no thread runs above.
  void run(int threads) {
    if (n_ == 0) return;  // the block was made for empty rows
    parallel_for(threads, (n_ + kKeys - 1) / kKeys, [&](int64_t task, int) { score(task); });
    parallel_for(threads, h_q_, [&](int64_t h, int) { soften(h); });
    parallel_for(threads, (block_.d_v + kColumns - 1) / kColumns, [&](int64_t task, int) { weigh(task); });
    if (block_.k_mean.rows() > 0) block_.k_mean.middleRows(i_ * h_q_, h_q_).noalias() = s_.P.leftCols(n_) * s_.K.topRows(n_);
  }

 private:
  const Inputs& in_;
  const Rows& rows_;
  const int64_t i_, n_;
  const int32_t h_q_;
  OracleBlock& block_;
  Scratch& s_;
};

OracleBlock empty_block(const Case& c, std::span<const int64_t> tokens, const OracleOptions& options) {
  OracleBlock block;
  block.h_q = c.h_q;
  block.d_v = c.d_v;
  block.tokens.assign(tokens.begin(), tokens.end());
  const auto rows = block.rows(), count = std::ssize(tokens);
  const auto rows_d_v = RowMatrixXd::Zero(rows, c.d_v), tokens_d_v = RowMatrixXd::Zero(count, c.d_v);
  const auto per_row = Eigen::VectorXd::Zero(rows);
  block.out = block.A = rows_d_v;
  block.sum_v2 = block.v_min = block.v_max = block.v_mean = tokens_d_v;
  block.n = block.p_max = block.pt_max = block.sum_pt2 = block.lost = per_row;
  block.lse = block.x_max = Eigen::VectorXd::Constant(rows, -kInfinity);
  std::vector<ScoreError> errors = {ScoreError{}};
  for (const auto& error : options.score_errors)
    if (std::find(errors.begin(), errors.end(), error) == errors.end()) errors.push_back(error);
  for (const auto& error : errors) {
    block.scores.push_back({error, rows_d_v, per_row, per_row, std::vector<uint8_t>(rows)});
    if (error.u_q > 0) block.C = rows_d_v, block.k_mean = RowMatrixXd::Zero(rows, c.d_qk);
  }
  return block;
}

double elapsed_ms(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

const OracleBlock::Scores& OracleBlock::scores_for(const ScoreError& error) const {
  for (const auto& each : scores)
    if (each.error == error) return each;
  throw std::logic_error("the oracle was not asked for the score error of this declaration");
}

std::vector<int32_t> valid_slots(const Inputs& in, int64_t t) {
  std::vector<int32_t> slots;
  const int64_t topk = in.c.topk, k_t = in.topk_length.empty() ? topk : std::clamp<int64_t>(in.topk_length[t], 0, topk);
  for (int64_t k = 0; k < k_t; ++k) {
    const int32_t slot = in.indices[t * topk + k];
    if (0 <= slot && slot < in.num_slots) slots.push_back(slot);
  }
  return slots;
}

double oracle_bytes(const Inputs& in, int64_t tokens, const OracleOptions& options) {
  const double h_q = in.c.h_q, d_qk = in.c.d_qk, d_v = in.c.d_v, scores = 1 + static_cast<double>(options.score_errors.size());
  const double n = static_cast<double>(std::min<int64_t>(in.c.topk, in.valid_keys)), count = static_cast<double>(tokens);
  const double scratch = (h_q + n) * d_qk + (3 + 1 + scores) * h_q * n, workers = tokens >= options.threads ? options.threads : 1;
  const double block = count * h_q * ((3 + scores) * d_v + d_qk);
  const double rows = std::min(count * n, static_cast<double>(in.selected.size())) * (static_cast<double>(in.row_bytes) + sizeof(int32_t));
  return sizeof(double) * (scratch * workers + block) + rows + sizeof(int32_t) * count * n;
}

OracleBlock oracle(const Inputs& in, std::span<const int64_t> tokens, const OracleOptions& options) {
  auto start = std::chrono::steady_clock::now();
  OracleBlock block = empty_block(in.c, tokens, options);
  std::vector<std::vector<int32_t>> lists;
  size_t max_n = 0;
  for (const int64_t t : tokens) {
    lists.push_back(valid_slots(in, t));
    max_n = std::max(max_n, lists.back().size());
  }
  const Rows rows = generate_rows(in, lists, options.threads);
  block.generate_ms = elapsed_ms(start);

  start = std::chrono::steady_clock::now();
  const bool rounded = std::any_of(block.scores.begin(), block.scores.end(), [](const auto& each) { return each.error.rounded(); });
  const auto count = std::ssize(tokens);
  const bool over_tokens = count >= options.threads;  // else inside one token
  const int workers = over_tokens ? options.threads : 1;
  std::vector<std::unique_ptr<Scratch>> scratch(workers);
  parallel_for(workers, count, [&](int64_t i, int worker) {
    auto& mine = scratch[worker];
    if (!mine) mine = std::make_unique<Scratch>(in.c, (static_cast<int64_t>(max_n) + 7) / 8 * 8, std::ssize(block.scores), rounded);
    Token(in, rows, lists[i], i, block, *mine).run(over_tokens ? 1 : options.threads);
  });
  block.compute_ms = elapsed_ms(start);
  return block;
}

}  // namespace smla
