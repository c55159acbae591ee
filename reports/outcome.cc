// SPDX-License-Identifier: Apache-2.0
#include "reports/outcome.h"

#include <fmt/format.h>

#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace smla {

bool is_red(Status status) { return status != Status::pass && status != Status::unsupported && status != Status::skipped; }

const AccuracyRow& Outcome::worst() const {
  if (out == nullptr || lse == nullptr) {
    if (out == nullptr && lse == nullptr) throw std::logic_error("an outcome without rows");
    return out != nullptr ? *out : *lse;
  }
  if (is_red(out->status) != is_red(lse->status)) return is_red(out->status) ? *out : *lse;
  return out->status != Status::pass ? *out : lse->status != Status::pass ? *lse : *out;
}

std::string Outcome::contradiction() const {
  if (out == nullptr) return "the row of out is missing";
  const bool without_lse = !out->oracle_rows || out->declared.find("lse_dtype=none") != out->declared.npos;
  if (lse == nullptr && !without_lse) return "the row of lse is missing";
  for (const AccuracyRow* row : {out, lse}) {
    if (row == nullptr) continue;
    const std::string is = fmt::format("{} is {}", name_of(row->tensor), name_of(row->status));
    const int64_t bad = row->n_bad.value_or(0) + row->n_bad_rows.value_or(0) + row->n_nonfinite_mismatch.value_or(0);
    if (row->status == Status::pass && bad > 0) return fmt::format("{}, with {} bad rows", is, row->n_bad_rows.value_or(0));
    if (row->status == Status::pass && !row->oracle_rows) return is + ", and no row was judged";
    if ((row->status == Status::pass) != row->detail.empty()) return fmt::format("{}, and its detail is '{}'", is, row->detail);
  }
  if (lse == nullptr) return "";
  if (out->checks_run != lse->checks_run || out->oracle_rows != lse->oracle_rows || out->declared != lse->declared || out->repro != lse->repro)
    return "its two rows are not of one run";
  for (const auto& [flag, name] : {std::pair{out->poison_ok, "poison_ok"},
                                   {out->guards_ok, "guards_ok"},
                                   {out->outputs_written_ok, "outputs_written_ok"},
                                   {out->determinism_ok, "determinism_ok"},
                                   {out->metamorphic_ok, "metamorphic_ok"}})
    if (flag == Flag{false} && out->status == Status::pass && lse->status == Status::pass)
      return fmt::format("both rows pass, and {} is false", name);
  return "";
}

std::string pair_key_of(const Case& c, const std::string& kernel) { return case_id(c) + ' ' + kernel; }
std::string pair_key(const Common& row) { return pair_key_of(row.c, row.kernel); }

std::vector<Outcome> outcomes(std::span<const AccuracyRow> rows) {
  std::vector<Outcome> all;
  std::unordered_map<std::string, size_t> index;
  for (const AccuracyRow& row : rows) {
    const auto [at, fresh] = index.try_emplace(pair_key(row), all.size());
    if (fresh) all.emplace_back();
    Outcome& outcome = all[at->second];
    const AccuracyRow*& slot = row.tensor == Tensor::out ? outcome.out : outcome.lse;
    if (slot != nullptr) outcome = {};  // run again: the rows before are superseded
    slot = &row;
  }
  return all;
}

std::vector<const ThroughputRow*> latest(std::span<const ThroughputRow> rows) {
  std::vector<const ThroughputRow*> all;
  std::unordered_map<std::string, size_t> index;
  for (const ThroughputRow& row : rows) {
    const auto [at, fresh] = index.try_emplace(fmt::format("{} {} {}", pair_key(row), row.timing, row.cache), all.size());
    if (fresh) all.push_back(&row);
    else all[at->second] = &row;
  }
  return all;
}

}  // namespace smla
