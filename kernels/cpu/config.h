// SPDX-License-Identifier: Apache-2.0
// What a CPU kernel may be told to do: arithmetic and conventions, switched at run time, so that one body stands for many GPU kernels.
#pragma once
#include "cases/contract.h"
#include "kernels/api/smla_kernel.h"

namespace smla::cpu {

/// Where row t's keys come from. `indices`: its list. `table`: positions [0, seq_lens[r] - s_q + j] through block_table.
enum class Source { indices, table };
/// How the running maximum follows the scores. `ceil`: rounded up to an integer. `lazy`: moved only when it would grow by more than 8.
enum class MaxRule { exact, ceil, lazy };
/// What becomes of fp8_656. `fold`: codes are multiplied, scales applied to the scores and folded into P. `dequantise`: code * scale, rounded to q's
/// type. `fp32`: code * scale in fp32.
enum class Fp8 { fold, dequantise, fp32 };

/// What num_splits = 0 means. `by_job`: few query tokens are split over their keys (and then a row depends on the batch it is in).
enum class OwnSplits { by_job, one };

struct Config {
  Source source = Source::indices;
  Rounding q = Rounding::exact;  // e4m3: each head's q is divided by its largest / 448 first, rounded up to a power of two
  Rounding p = Rounding::q;
  float p_scale = 1;               // P times this is what gets rounded
  RowSum row_sum = RowSum::exact;  // rounded: P is rounded before it is summed; not with Fp8::fold, where it would be rounded twice
  MaxRule max_rule = MaxRule::exact;
  Rounding part = Rounding::fp32;
  Fp8 fp8 = Fp8::fold;
  OwnSplits own_splits = OwnSplits::by_job;
  LseType lse_dtype = LseType::f32;
  LseBase lse_base = LseBase::e;
  EmptyLse empty_lse = EmptyLse::neg_inf;
  bool sink_in_lse = false;
  Padding padding = Padding::anywhere;                     // tail_only: a row ends at its first invalid entry
  InvalidIndex invalid_index = InvalidIndex::any_outside;  // declared; every value below 0 or above num_slots is ignored anyway
};

}  // namespace smla::cpu
