// SPDX-License-Identifier: Apache-2.0
// The closed vocabularies that every room speaks: what a case may say, and how a (case, kernel) may end.
#pragma once
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace smla {

/// A mistake of the user's (unknown key, bad file, contradictory case): one line, exit status 3.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class PassKind : int32_t { decode, prefill };
enum class FloatType : int32_t { bf16, fp16 };                            // q, out, RoPE bytes; values equal SMLA_BF16, SMLA_FP16
enum class KvFormat : int32_t { bf16, fp16, fp8_656, fp8_584, fp8_576 };  // values equal SMLA_KV_*; the last two are known, not judged yet
enum class Scales : int32_t { arbitrary, pow2 };
enum class TableKind : int32_t { request, query };  // rows of the page table: one a request, or one a query
enum class Lens : int32_t { full, mixed };
enum class SinkKind : int32_t { none, finite, pinf, ninf, mixed };
enum class Pattern : int32_t {
  contiguous,
  dense,
  scattered,
  sorted,
  reversed,
  page_straddling,
  one_page,
  every_page,
  padded,
  leading_invalid,
  interleaved_invalid,
  all_invalid,
  out_of_range,
  stale_tail,
  duplicates,
  short_context,
  shared_prefix,
  sink_and_recent,
  far,
  file  // of a .npy file: spelled pattern=file:PATH
};
enum class Values : int32_t { gaussian, needle, tracer, exact_mean, rising_max, falling_max, sawtooth_max, late_max, large_logits, outliers, tiny };
enum class Status : int32_t { pass, fail, mistrusted, crash, timeout, oom, impossible_fast, unsupported, skipped, invalid };
enum class Tensor : int32_t { out, lse };

/// Names of an enum's values, in order. Specialised in words.cc for each enum above.
template <class E>
struct Names;
#define SMLA_NAMES(E, ...)                                    \
  template <>                                                 \
  struct Names<E> {                                           \
    static constexpr std::string_view kKind = #E;             \
    static constexpr std::string_view kAll[] = {__VA_ARGS__}; \
  };
SMLA_NAMES(PassKind, "decode", "prefill")
SMLA_NAMES(FloatType, "bf16", "fp16")
SMLA_NAMES(KvFormat, "bf16", "fp16", "fp8_656", "fp8_584", "fp8_576")
SMLA_NAMES(Scales, "arbitrary", "pow2")
SMLA_NAMES(TableKind, "request", "query")
SMLA_NAMES(Lens, "full", "mixed")
SMLA_NAMES(SinkKind, "none", "finite", "pinf", "ninf", "mixed")
SMLA_NAMES(Pattern, "contiguous", "dense", "scattered", "sorted", "reversed", "page_straddling", "one_page", "every_page", "padded",
           "leading_invalid", "interleaved_invalid", "all_invalid", "out_of_range", "stale_tail", "duplicates", "short_context", "shared_prefix",
           "sink_and_recent", "far", "file")
SMLA_NAMES(Values, "gaussian", "needle", "tracer", "exact_mean", "rising_max", "falling_max", "sawtooth_max", "late_max", "large_logits", "outliers",
           "tiny")
SMLA_NAMES(Status, "pass", "fail", "mistrusted", "crash", "timeout", "oom", "impossible_fast", "unsupported", "skipped", "invalid")
SMLA_NAMES(Tensor, "out", "lse")
#undef SMLA_NAMES

template <class E>
std::string_view name_of(E value) {
  return Names<E>::kAll[static_cast<size_t>(value)];
}

/// The name in `names` nearest to `word` by edit distance (for "did you mean"), or "" where nothing is near.
std::string nearest(std::string_view word, const std::string_view* names, size_t count);

/// Throws UsageError naming the key, the word and the nearest known value.
[[noreturn]] void throw_unknown_value(std::string_view key, std::string_view word, const std::string_view* names, size_t count);

template <class E>
E parse_enum(std::string_view key, std::string_view word) {
  constexpr size_t count = std::size(Names<E>::kAll);
  for (size_t i = 0; i < count; ++i)
    if (Names<E>::kAll[i] == word) return static_cast<E>(i);
  throw_unknown_value(key, word, Names<E>::kAll, count);
}

}  // namespace smla
