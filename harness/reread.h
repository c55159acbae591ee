// SPDX-License-Identifier: Apache-2.0
// A row answered once more, in fp64, from what a kernel may have read in place of the right thing.
#pragma once
#include <Eigen/Dense>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "cases/contract.h"
#include "cases/inputs.h"
#include "reference/budget.h"
#include "reference/oracle.h"

namespace smla {

/// The entries of a list that name a slot of the pool which holds numbers. The first n stand before K_t.
struct Keys {
  std::vector<int32_t> position, slot;
  std::vector<uint8_t> bytes;  // [entries][row_bytes]
  RowMatrixXd k;               // [entries][d_qk]
  int64_t n = 0;
};

/// Entry i counts m_i times, with score x_i and value v_i.
struct Reading {
  Eigen::VectorXd x, m;
  RowMatrixXd v;
  double sink;
};
struct Reread {
  Eigen::VectorXd out, sigma;  // sigma: of the roundings that the contract declares, those of scores left out
  double lse;                  // base e, with the sink or without as the contract has it
};

/// What the rows of a call share.
class Call {
 public:
  Call(const Inputs& inputs, const Contract& judged_by, bool split) : in(inputs), contract(judged_by), split_(split) {}
  const Inputs& in;
  const Contract& contract;
  bool split() const { return split_; }

  /// Some row selects it, or nothing that is read holds anything else (Poison::numbers): then slot -1 and slot num_slots do, too.
  bool holds_numbers(int64_t slot) const;
  void append(Keys& keys, int32_t slot) const;
  /// The bytes of the pool from `offset` on, counted from its first page. False: some of them are no numbers.
  bool bytes_at(int64_t offset, std::span<uint8_t> bytes) const;
  /// k from bytes.
  void decode(Keys& keys) const;
  const Keys& list(int64_t t);
  Eigen::VectorXd scores(const RowMatrixXd& k, int64_t t, int32_t h) const;
  /// The list of token t under the query of (q_t, h), with head h's sink.
  Reading reading(int64_t t, int64_t q_t, int32_t h);
  Reread answer(const Reading& reading) const;

 private:
  bool is_selected(int64_t slot) const;
  void row(int64_t slot, uint8_t* bytes) const;

  bool split_;
  std::map<int64_t, Keys> lists_;
};

/// A row that a kernel got wrong, beside what it should have read.
class WrongRow {
 public:
  /// `lse` in base e.
  WrongRow(Call& call, int64_t t, int32_t h, const RowStats& stats, std::span<const float> out, double lse);
  Call& call;
  int64_t t;
  int32_t h;
  RowStats stats;
  Eigen::VectorXd got;
  double lse;
  Reading right;

  const Inputs& in() const { return call.in; }
  const Keys& keys() const { return call.list(t); }
  /// What the list says, [topk].
  const int32_t* list() const { return in().indices.data() + t * in().c.topk; }
  int32_t k_t() const { return in().k_t(t); }

  /// The kernel's own answer: within a few sigma of it, and nearer to it than to the right one where that is wrong. An lse that is wrong may be wrong
  /// for a reason of its own, unless `of_lse`.
  bool is(const Reread& answer, bool of_lse) const;
  /// How far it is from that: of out, the sum of squares in units of sigma; of lse, the square in units of its limit.
  double misfit(const Reread& answer, bool of_lse) const;
  bool is_out(const Reread& answer) const;
  bool is_lse(double other) const;
  /// The slot counts `times` more. False: it holds no number.
  bool count(Reading& reading, int64_t slot, double times) const;
  static void count(Reading& reading, double x, const RowMatrixXd& v, double times);
  /// These keys, once each, in place of all others.
  void replace(Reading& reading, Keys& keys) const;

 private:
  double off(const Reread& answer) const;
  double lse_limit(double other) const;
  double off_right_;
};

}  // namespace smla
