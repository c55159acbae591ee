// SPDX-License-Identifier: Apache-2.0
#include "reports/outcome.h"

#include <fmt/format.h>

#include <stdexcept>
#include <unordered_map>

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
