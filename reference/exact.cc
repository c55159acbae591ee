// SPDX-License-Identifier: Apache-2.0
#include "reference/exact.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/decode.h"

namespace smla {
namespace {

/// What a rule says of one row: the exact answer, how far from it each element may be, and the lse.
struct Exact {
  std::vector<double> out, allowed;  // [d_v]; 0 = bit-equal
  LseBudget lse;
};

Exact exact_needle(const Inputs& in, int64_t t, int32_t h, int64_t slot, int32_t multiplicity, const Contract& contract, bool split) {
  const Case& c = in.c;
  std::vector<uint8_t> bytes(in.row_bytes);
  std::vector<uint16_t> bits(c.d_qk);
  std::vector<double> k(c.d_qk), q(c.d_qk);
  kv_row(in, slot, bytes.data());
  decode_row(c, bytes.data(), k.data());
  q_row(in, t, h, bits.data());
  decode16(bits.data(), c.q_dtype, c.d_qk, q.data());

  double dot = 0, q2 = 0, k2 = 0, w = 0;
  for (int32_t d = 0; d < c.d_qk; ++d) dot += q[d] * k[d], q2 += q[d] * q[d], k2 += k[d] * k[d], w += q[d] * k[d] * q[d] * k[d];
  const double sm_scale = c.sm_scale, x = sm_scale * dot, sink = sink_of(in, h);
  const double lse_var = score_error(contract, c).sx2(q2 * k2 * sm_scale * sm_scale, w * sm_scale * sm_scale, x, c.d_qk);

  Exact exact;
  const Roundoff u(contract, c, split);
  for (int32_t d = 0; d < c.d_v; ++d) {
    exact.out.push_back(sink == std::numeric_limits<double>::infinity() ? 0 : k[d]);
    exact.allowed.push_back(contract.p_max == PMax::any ? (u.p + u.part + u.out) * std::fabs(exact.out[d]) : 0);
  }
  exact.lse = lse_budget({.lse = x + std::log(multiplicity), .x_max = x, .var = lse_var}, sink, contract, c);
  return exact;
}

Exact exact_mean(const OracleBlock& block, int64_t row, const Inputs& in, const Contract& contract, bool split) {
  Exact exact;
  const double per_element = Roundoff(contract, in.c, split).part + (contract.acc == Acc::fp22 ? kEAcc * block.n[row] / 32 : 0);
  const int digits = in.c.q_dtype == FloatType::bf16 ? 7 : 10;  // behind the leading one
  for (int32_t d = 0; d < block.d_v; ++d) {
    const double mean = block.v_mean(row / block.h_q, d);
    exact.out.push_back(mean);
    exact.allowed.push_back(0.502 * std::ldexp(1.0, std::ilogb(mean) - digits) + per_element * std::fabs(mean));
  }
  const double lse = std::log(block.n[row]);
  exact.lse = {lse, 0, lse_rounding(lse, lse, contract)};
  return exact;
}

/// Of what a needle row gave: which slot's bits, and what that slot is to the row.
std::string diagnose(const Inputs& in, int64_t t, int32_t h, int64_t needle, std::span<const float> out) {
  const std::string wanted =
      fmt::format("t={} h={} should be slot {} ({})", t, h, needle, needle < 0 ? "empty row: zeros" : describe_slot(in, t, needle));
  if (std::all_of(out.begin(), out.end(), [](float x) { return x == 0; })) return wanted + "; got zeros";
  if (!std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); })) return wanted + "; got non-finite values";
  const int64_t slot = trace_slot(in, out.data());
  if (slot < 0) return wanted + "; got the bits of no slot (a mixture of rows, or not V)";
  if (slot == needle) return wanted + "; got its signs with other magnitudes";
  return fmt::format("{}; got slot {} ({})", wanted, slot, describe_slot(in, t, slot));
}

}  // namespace

bool needs_no_oracle(Values values) { return values == Values::needle || values == Values::tracer; }
bool is_exact_family(Values values) { return needs_no_oracle(values) || values == Values::exact_mean; }

RowStats judge_exact_row(const OracleBlock* block, int64_t row, const Inputs& in, int64_t t, int32_t h, const Contract& contract, bool split,
                         std::span<const float> out, double lse, const Limits& limits, std::string* diagnosis) {
  RowStats stats;
  const bool is_needle = needs_no_oracle(in.c.values);
  if (!is_needle && block == nullptr) throw std::logic_error("this family is judged with the oracle's block");
  int32_t multiplicity = 0;
  const int64_t needle = is_needle ? needle_slot(in, t, h, &multiplicity) : -1;
  if (is_needle ? needle < 0 : block->n[row] == 0) {
    judge_empty_row(out, lse, sink_of(in, h), contract, stats);
  } else {
    const Exact exact = is_needle ? exact_needle(in, t, h, needle, multiplicity, contract, split) : exact_mean(*block, row, in, contract, split);
    const double u_out = Roundoff(contract, in.c, split).out;
    for (size_t d = 0; d < out.size(); ++d) {
      const double error = std::fabs(out[d] - exact.out[d]), allowed = exact.allowed[d];
      const bool bad = !(error <= allowed);  // NaN is bad
      stats.n_nonfinite_mismatch += !std::isfinite(out[d]);
      stats.n_bad += bad;
      if (!bad && allowed == 0) continue;
      // Where bit-equality is asked, half an ulp counts as 6.
      const double z = limits.z_max * error / (allowed > 0 ? allowed : u_out * std::max(std::fabs(exact.out[d]), 1.0));
      if (std::isfinite(z) && z > stats.z_max) stats.z_max = z, stats.z_argmax = static_cast<int32_t>(d);
    }
    judge_lse(lse, exact.lse, contract, stats);
  }
  if (diagnosis && is_needle && stats.n_bad > 0) *diagnosis = diagnose(in, t, h, needle, out);
  return stats;
}

RowStats judge_row_of_family(const OracleBlock* block, int64_t row, const Inputs& in, int64_t t, int32_t h, const Contract& contract, bool split,
                             std::span<const float> out, double lse, const Limits& limits, std::string* diagnosis) {
  return is_exact_family(in.c.values) ? judge_exact_row(block, row, in, t, h, contract, split, out, lse, limits, diagnosis)
                                      : judge_row(*block, row, in, contract, split, out, lse, limits);
}

std::string describe_slot(const Inputs& in, int64_t t, int64_t slot) {
  if (slot < 0) return "before the pool";
  if (slot >= in.num_slots) return "behind the pool";
  const int64_t topk = in.c.topk, k_t = in.k_t(t);
  const auto row = std::span(in.indices).subspan(t * topk, topk);
  const auto find = [&](int64_t wanted) { return std::find(row.begin(), row.end(), wanted) - row.begin(); };
  if (const int64_t k = find(slot); k < topk)
    return fmt::format("entry {} of the row", k) + (k < k_t ? "" : fmt::format(", past its topk_length {}", k_t));
  for (const int64_t step : {1, -1})
    if (const int64_t k = find(slot - step); k < k_t) return fmt::format("the {} of entry {}", step > 0 ? "next slot" : "slot before that", k);
  const PageUse* use = in.page_use(slot / in.c.page_size);
  if (use == nullptr) return fmt::format("page {}, which nothing uses", slot / in.c.page_size);
  const int32_t position = in.position(slot), request = use->owner;
  return fmt::format("position {} of {}request {}", position, request == t / in.c.s_q ? "the row's own " : "", request);
}

}  // namespace smla
