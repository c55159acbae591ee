// SPDX-License-Identifier: Apache-2.0
#include "harness/checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "cases/words.h"
#include "kernels/api/smla_kernel.h"
#include "reference/exact.h"

namespace smla {
namespace {

using Runs = std::vector<CheckRun>;

Variant with(auto Variant::*member, auto value) {
  Variant variant;
  variant.*member = value;
  return variant;
}

Runs none(const Inputs&, const Contract&) { return {}; }

/// In the base run another input comes first.
Runs determinism(const Inputs&, const Contract&) {
  CheckRun run;
  run.same_bits = SameBits::if_deterministic;
  run.first_launch = true;
  return {run};
}

Runs poison(const Inputs&, const Contract&) {
  return {{with(&Variant::poison, Poison::huge), OutputFill::ones, SameBits::if_deterministic},
          {with(&Variant::poison, Poison::random), OutputFill::huge, SameBits::if_deterministic}};
}

Runs bounds(const Inputs&, const Contract&) {
  Runs runs;
  for (Guard guard : {Guard::fault_before, Guard::fault_after}) {
    CheckRun run;
    run.same_bits = SameBits::if_deterministic;
    run.guard = guard;
    runs.push_back(run);
  }
  return runs;
}

Runs dense_twin(const Inputs& in, const Contract&) {
  if ((in.flags & SMLA_FLAG_DENSE_SET) == 0) return {};
  CheckRun run;
  run.kernel = kDenseOfDevice;
  return {run};
}

Runs remapped(const Inputs&, const Contract&) { return {{with(&Variant::remap_pages, true), OutputFill::nan, SameBits::if_deterministic}}; }
Runs strided(const Inputs&, const Contract&) { return {{with(&Variant::pad_strides, true), OutputFill::nan, SameBits::if_deterministic}}; }
CheckRun called(Calls calls) {
  CheckRun run;
  run.same_bits = SameBits::if_deterministic;
  run.calls = calls;
  return run;
}
Runs back_to_back(const Inputs& in, const Contract&) {
  CheckRun run = called(Calls::back_to_back);
  if ((in.flags & SMLA_FLAG_DENSE_SET) == 0) run.other.half = 1;  // shorter lists, too
  return {run};
}
Runs gate(const Inputs&, const Contract&) { return {called(Calls::gate)}; }
Runs graph(const Inputs&, const Contract&) { return {called(Calls::graph)}; }
Runs streams(const Inputs&, const Contract&) {
  CheckRun run = called(Calls::streams);
  run.launches = 20;
  return {run};
}
Runs permuted(const Inputs&, const Contract&) { return {{with(&Variant::permute_indices, true)}}; }
Runs inserted(const Inputs&, const Contract&) { return {{with(&Variant::insert_invalid, true)}}; }

Runs batch(const Inputs& in, const Contract&) {
  if (in.c.b < 2) return {};
  return {{with(&Variant::permute_batch, true), OutputFill::nan, SameBits::if_batch_invariant}};
}

Runs scaled(const Inputs&, const Contract&) { return {{with(&Variant::scale_q_log2, 3), OutputFill::nan, SameBits::if_scale_exact}}; }

Runs splits(const Inputs& in, const Contract&) {
  Runs runs;
  for (int num_splits : {1, 2, 4, 8, 16, 32})
    if (num_splits != in.c.num_splits) runs.push_back({with(&Variant::num_splits, num_splits)});
  return runs;
}

/// Without its needle, or with another content, a row of these families has no exact answer.
bool needs_its_needle(const Inputs& in) { return needs_no_oracle(in.c.values); }

Runs halves(const Inputs& in, const Contract&) {
  if (needs_its_needle(in)) return {};
  Runs runs;
  for (int half : {1, 2}) {
    CheckRun run{with(&Variant::half, half)};
    run.own_oracle = true;
    runs.push_back(run);
  }
  return runs;
}

Runs sensitivity(const Inputs& in, const Contract&) {
  Runs runs;
  for (const std::string& argument : perturbations(in.c)) {
    if (needs_its_needle(in) && (argument == "kv" || argument == "indices" || argument == "topk_length")) continue;
    CheckRun run{with(&Variant::perturb, argument)};
    run.own_oracle = true;
    runs.push_back(run);
  }
  return runs;
}

constexpr Check kChecks[] = {
    {"guards", CheckColumn::guards, true, "canaries before and after every buffer are whole after every run", false, none},
    {"inputs", CheckColumn::guards, true, "every input holds the same bytes after every run", false, none},
    {"written", CheckColumn::outputs_written, true, "no element of out and lse still holds what it was filled with", false, none},
    {"determinism", CheckColumn::determinism, true,
     "launches agree bit by bit, an unrelated input in between (where declared); so does a process's first", false, determinism},
    {"poison", CheckColumn::poison, true, "what nobody selects, outputs and workspace hold huge, then random bytes instead of NaN: same bits", false,
     poison},
    {"bounds", CheckColumn::guards, false, "memory before, then behind every input is not mapped: nothing reads there", false, bounds},
    {"back_to_back", CheckColumn::determinism, false, "on the workspace as the call before left it, with other lists and lengths: same bits", false,
     back_to_back},
    {"gate", CheckColumn::determinism, false, "while a kernel holds the stream, nothing is written: all work is ordered on it", true, gate},
    {"graph", CheckColumn::determinism, false, "captured in a graph, replayed after the inputs changed in place: same bits", true, graph},
    {"streams", CheckColumn::determinism, false, "20 times beside another call on another stream: same bits", true, streams},
    {"remapped", CheckColumn::metamorphic, false, "the same rows in other physical pages: same bits", false, remapped},
    {"strided", CheckColumn::metamorphic, true, "strides of q, indices, out and lse exceed the shape: same bits", false, strided},
    {"batch", CheckColumn::metamorphic, true, "requests in reversed order: same bits where batch_invariant is declared, else within budget", false,
     batch},
    {"scaled", CheckColumn::metamorphic, false, "q * 8 with sm_scale / 8: same bits where scale_exact is declared, else within budget", false,
     scaled},
    {"permuted", CheckColumn::metamorphic, false, "each list in another order: within budget", false, permuted},
    {"inserted", CheckColumn::metamorphic, false, "-1 entries inserted in every list: within budget", false, inserted},
    {"splits", CheckColumn::metamorphic, false, "num_splits 1 to 32: within budget", false, splits},
    {"halves", CheckColumn::metamorphic, false, "two disjoint halves of every list, merged by their lse: the whole", false, halves},
    {"dense_twin", CheckColumn::metamorphic, false, "where every position is selected: the dense kernel of the same device answers the same", false,
     dense_twin},
    {"sensitivity", CheckColumn::metamorphic, false, "each argument that must matter is changed: the answer follows", false, sensitivity},
};

}  // namespace

std::span<const Check> checks() { return kChecks; }

std::string to_string(const CheckRun& run) {
  std::string text = to_word(run.variant);
  const auto add = [&](std::string_view word) { text = text == "base" ? std::string(word) : fmt::format("{} {}", text, word); };
  if (run.fill != OutputFill::nan) add(run.fill == OutputFill::ones ? "fill_ones" : "fill_huge");
  if (run.guard != Guard::canary) add(run.guard == Guard::fault_before ? "fault_before" : "fault_after");
  constexpr std::string_view kCalls[] = {"plain", "back_to_back", "gate", "graph", "streams"};
  if (run.calls != Calls::plain) add(kCalls[static_cast<size_t>(run.calls)]);
  if (!run.kernel.empty()) add(run.kernel);
  if (run.first_launch) add("the first launch of a process");
  return text;
}

std::vector<size_t> parse_checks(const std::string& list) {
  std::vector<size_t> chosen;
  const auto all = checks();
  if (list == "none") return chosen;
  if (list == "quick" || list == "all") {
    for (size_t i = 0; i < all.size(); ++i)
      if (list == "all" || all[i].quick) chosen.push_back(i);
    return chosen;
  }
  std::vector<std::string_view> names{"quick", "all", "none"};
  for (const Check& check : all) names.push_back(check.name);
  for (size_t from = 0; from <= list.size();) {
    const size_t comma = std::min(list.find(',', from), list.size());
    const std::string_view word = std::string_view(list).substr(from, comma - from);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Check& check) { return check.name == word; });
    if (found == all.end()) throw_unknown_value("--checks", word, names.data(), names.size());
    chosen.push_back(static_cast<size_t>(found - all.begin()));
    from = comma + 1;
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

std::string contract_excludes(const Contract& contract, const Inputs& in) {
  if (contract.padding == Padding::tail_only && (in.flags & SMLA_FLAG_TAIL_PADDED) == 0)
    return "contract: padding=tail_only, and the case has invalid entries before valid ones";
  if (contract.duplicates == Duplicates::undefined && (in.flags & SMLA_FLAG_DUPLICATES) != 0)
    return "contract: duplicates=undefined, and the case names a slot more than once";
  if (contract.invalid_index != InvalidIndex::any_outside) {
    for (int64_t t = 0; t < in.tokens(); ++t)
      for (int32_t j = 0; j < in.k_t(t); ++j) {
        const int32_t index = in.indices[t * in.c.topk + j];
        const bool covered = contract.invalid_index == InvalidIndex::minus_one ? index >= -1 : true;
        if (!covered || index >= in.num_slots)
          return fmt::format("contract: invalid_index={}, and the case has index {}",
                             contract.invalid_index == InvalidIndex::minus_one ? "minus_one" : "negative", index);
      }
  }
  return "";
}

}  // namespace smla
