// SPDX-License-Identifier: Apache-2.0
// What a kernel declares of itself. The C form that crosses the door is smla_contract (kernels/api/smla_kernel.h); values are equal.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "cases/words.h"

namespace smla {

enum class InvalidIndex : int32_t { any_outside, minus_one, negative };
enum class Padding : int32_t { anywhere, tail_only };
enum class LseType : int32_t { f32, bf16, none };
enum class LseBase : int32_t { e, two };
enum class EmptyLse : int32_t { neg_inf, pos_inf, large_negative };  // the last: finite and <= -1e20
enum class Duplicates : int32_t { counted, undefined };
enum class Rounding : int32_t { exact, fp32, fp16, bf16, e4m3, q };  // q: the type q has
enum class Acc : int32_t { fp32, fp22 };
enum class RowSum : int32_t { exact, rounded };
enum class PMax : int32_t { one, any };

/// Default-constructed: the reference conventions, everything exact but P, which is in q's type.
struct Contract {
  InvalidIndex invalid_index = InvalidIndex::any_outside;
  Padding padding = Padding::anywhere;
  LseType lse_dtype = LseType::f32;
  LseBase lse_base = LseBase::e;
  EmptyLse empty_lse = EmptyLse::neg_inf;
  bool sink_in_lse = false;
  Duplicates duplicates = Duplicates::counted;
  Rounding q = Rounding::exact, k = Rounding::exact, v = Rounding::exact;
  Rounding p = Rounding::q;
  float p_scale = 1;
  Acc acc = Acc::fp32;
  RowSum row_sum = RowSum::exact;
  PMax p_max = PMax::one;
  Rounding part = Rounding::fp32;
  bool deterministic = false, batch_invariant = false, scale_exact = false;
  bool operator==(const Contract&) const = default;
};

/// The declaration that every row is also measured against: P and out in q's type, the rest exact.
inline Contract reference_contract() { return Contract{}; }

/// The CSV form: only what differs from exact / fp32 / base e, `key=value` joined by '|', e.g. "p=bf16|part=bf16". `q_dtype` resolves Rounding::q.
std::string declared(const Contract& contract, FloatType q_dtype);

/// Words of the contract's table in cases/README.md, `key=value` with spaces, commas or '|' between: "lse_base=two p=fp32". What is not named stays
/// as in `base`. Throws UsageError naming the nearest key or value.
Contract parse_contract(std::string_view words, const Contract& base = {});
/// The same words, for all that differs from the reference conventions: parse_contract(contract_words(c)) == c.
std::string contract_words(const Contract& contract);

/// Unit roundoff of a rounding (bf16 2^-8, fp16 2^-11, e4m3 2^-4, fp32 2^-24, exact 0) and what is lost below its range.
double unit_roundoff(Rounding rounding, FloatType q_dtype);

}  // namespace smla
