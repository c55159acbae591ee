// SPDX-License-Identifier: Apache-2.0
#include "harness/impostors.h"

#include <algorithm>
#include <limits>

#include "harness/compare_rows.h"
#include "reference/decode.h"
#include "reference/exact.h"

namespace smla {
namespace {

constexpr Impostor kScored[] = {Impostor::zeros, Impostor::mean_v, Impostor::head_swap};
constexpr Impostor kPointed[] = {Impostor::zeros, Impostor::mean_v, Impostor::key_missing};
constexpr Impostor kCounted[] = {Impostor::zeros, Impostor::key_missing};

using Row = std::vector<float>;

Row value_of(const Inputs& in, int64_t slot) {
  std::vector<uint8_t> bytes(static_cast<size_t>(in.row_bytes));
  std::vector<double> k(static_cast<size_t>(in.c.d_qk));
  kv_row(in, slot, bytes.data());
  decode_row(in.c, bytes.data(), k.data());
  return Row(k.begin(), k.begin() + in.c.d_v);
}

Row mean_of(const Inputs& in, const std::vector<int32_t>& slots) {
  std::vector<double> sum(static_cast<size_t>(in.c.d_v));
  for (int32_t slot : slots) {
    const Row v = value_of(in, slot);
    for (size_t d = 0; d < sum.size(); ++d) sum[d] += v[d];
  }
  Row mean(sum.size());
  for (size_t d = 0; d < sum.size(); ++d) mean[d] = static_cast<float>(sum[d] / static_cast<double>(slots.size()));
  return mean;
}

Row row_of(const RowMatrixXd& matrix, int64_t row) {
  Row out(static_cast<size_t>(matrix.cols()));
  for (int64_t d = 0; d < matrix.cols(); ++d) out[d] = static_cast<float>(matrix(row, d));
  return out;
}

/// The impostor's answer for (t, h), or nothing where this row cannot show it.
Row answer(Impostor impostor, const OracleBlock* block, int64_t i, const Inputs& in, int64_t t, int32_t h, const std::vector<int32_t>& slots) {
  switch (impostor) {
    case Impostor::zeros:
      return Row(static_cast<size_t>(in.c.d_v), 0.0f);
    case Impostor::mean_v:
      return block != nullptr ? row_of(block->v_mean, i) : mean_of(in, slots);
    case Impostor::head_swap:
      return in.c.h_q < 2 ? Row{} : row_of(block->out, i * in.c.h_q + (h + 1) % in.c.h_q);
    case Impostor::key_missing: {
      if (needs_no_oracle(in.c.values)) {  // without its needle a row answers with another of its keys
        const int64_t needle = needle_slot(in, t, h);
        const auto other = std::find_if(slots.begin(), slots.end(), [&](int32_t slot) { return slot != needle; });
        return other == slots.end() ? Row{} : value_of(in, *other);
      }
      const double n = static_cast<double>(slots.size());
      Row mean = row_of(block->v_mean, i);
      const Row v = value_of(in, slots.front());
      for (size_t d = 0; d < mean.size(); ++d) mean[d] = static_cast<float>((n * mean[d] - v[d]) / (n - 1));
      return mean;
    }
  }
  return {};
}

}  // namespace

std::span<const Impostor> promised(Values values) {
  switch (values) {
    case Values::needle:
    case Values::tracer:
      return kPointed;
    case Values::exact_mean:
      return kCounted;
    case Values::large_logits:
    case Values::tiny:
      return {};
    default:
      return kScored;
  }
}

ImpostorWatch::ImpostorWatch(const Inputs& in, const Contract& contract, bool split) : in_(in), contract_(contract), split_(split) {
  contract_.lse_dtype = LseType::none;  // impostors have no lse
  reference_ = with_reference_precision(contract_);
  for (Impostor impostor : promised(in.c.values)) watched_.push_back({impostor});
}

void ImpostorWatch::add(const OracleBlock* block, std::span<const int64_t> tokens, const Limits& limits) {
  const auto done = [](const Watched& w) { return w.rejected; };
  for (size_t i = 0; i < tokens.size() && !std::all_of(watched_.begin(), watched_.end(), done); ++i) {
    const std::vector<int32_t> slots = valid_slots(in_, tokens[i]);
    if (slots.size() < 2) continue;
    for (int32_t h = 0; h < in_.c.h_q; ++h) {
      if (!in_.sink.empty() && in_.sink[h] == std::numeric_limits<float>::infinity()) continue;  // 0 is right there
      const int64_t row = static_cast<int64_t>(i) * in_.c.h_q + h;
      for (Watched& w : watched_) {
        if (w.rejected) continue;
        Row out = answer(w.impostor, block, static_cast<int64_t>(i), in_, tokens[i], h, slots);
        if (out.empty()) continue;
        for (float& x : out) x = widen(in_.c.q_dtype, round_to(in_.c.q_dtype, x));  // as a kernel would store it
        w.shown = true;
        const auto rejects = [&](const Contract& by) {
          return !judge_row_of_family(block, row, in_, tokens[i], h, by, split_, out, 0.0, limits).out_ok(limits);
        };
        w.rejected = rejects(contract_);
        w.rejected_by_reference = w.rejected_by_reference || w.rejected || rejects(reference_);
      }
    }
  }
}

std::string ImpostorWatch::names(bool by_reference_too) const {
  std::string text;
  for (const Watched& w : watched_)
    if (w.shown && !w.rejected && w.rejected_by_reference != by_reference_too) text += (text.empty() ? "" : ", ") + std::string(name_of(w.impostor));
  return text;
}

std::string ImpostorWatch::accepted() const {
  const std::string text = names(true);
  return text.empty() ? "" : "this case would accept " + text + " as right";
}

std::string ImpostorWatch::accepted_as_declared() const {
  const std::string text = names(false);
  return text.empty() ? "" : "contract: as loose as declared, " + text + " would pass this case too; by the reference declaration they do not";
}

}  // namespace smla
