// SPDX-License-Identifier: Apache-2.0
// Everything a call is given, as a pure function of (case, variant). Small tensors are held; the pool and q are functions of slot and row,
// so nobody needs the pool to know a row.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/values.h"

namespace smla {

/// A change of the inputs that a check asks for. Default: the case itself. One at a time, or several.
struct Variant {
  Poison poison = Poison::nan;
  bool permute_indices = false;  // each row's list in another (seeded) order; topk_length and invalid entries move along consistently
  bool insert_invalid = false;   // topk grows: -1 entries inserted inside every row's list (padding=anywhere only)
  bool remap_pages = false;      // another page permutation of the same logical content: same rows, other slots
  bool permute_batch = false;    // requests in reversed order
  int scale_q_log2 = 0;          // q * 2^k and sm_scale * 2^-k
  int half = 0;                  // 1, 2: the first / second half of each row's valid entries, the rest -1
  int num_splits = -1;           // >= 0: instead of the case's
  bool pad_strides = false;      // strides of q, indices, out, lse exceed the shape
  std::string perturb;           // sensitivity: the one argument that is changed, a name of perturbations()
  bool second = false;           // an unrelated second input of the same shape (seed + 1): determinism runs alternate with it
  bool operator==(const Variant&) const = default;
};
/// "base", or words joined by '+': "poison_huge", "permuted+splits_4" ...; round trip, for the worker protocol.
std::string to_word(const Variant& variant);
Variant parse_variant(std::string_view word);
/// The arguments that may be changed in this case, of: q kv indices topk_length sink sm_scale. Where a part of an argument can be changed, it is that
/// of every second request, token and head, the last one included, so that the others show whether they stay.
std::vector<std::string> perturbations(const Case& c);

/// A physical page in use. Kept as a list because a pool may be nearly all address space (pattern=far).
struct PageUse {
  int32_t page;     // physical
  int32_t logical;  // which page of its request
  int32_t owner;    // a request that uses it; under shared_prefix one of several
  int32_t source;   // the page whose content it holds: itself, unless remap_pages moved it
};

/// Rows that come from a captured call (harness/capture) instead of the generator, in memory that outlives the Inputs.
struct GivenRows {
  const uint8_t* kv = nullptr;  // [num_pages], page_stride_bytes apart: [page_size][row_bytes]
  const uint8_t* q = nullptr;   // [T][h_q][d_qk], dense
};

/// All of one call's inputs but the two big ones.
struct Inputs {
  Case c;  // fully expanded, the variant's changes of topk, num_splits, sm_scale applied
  Variant variant;
  int64_t num_pages = 0, num_slots = 0;
  int64_t row_bytes = 0, page_stride_bytes = 0;
  int32_t max_pages = 0;              // columns of block_table
  int32_t table_rows = 0;             // b or T
  std::vector<int32_t> seq_lens;      // [b]
  std::vector<int32_t> block_table;   // [table_rows][max_pages], garbage beyond the length
  std::vector<int32_t> indices;       // [T][topk]
  std::vector<int32_t> topk_length;   // [T]; empty = null pointer
  std::vector<float> sink;            // [h_q]; empty = null pointer
  std::vector<PageUse> page_uses;     // sorted by page; a page that is not here holds no position of any request
  int32_t flags = 0;                  // SMLA_FLAG_* bits (values equal; cases includes no kernel header)
  int64_t valid_keys = 0;             // over all rows
  std::vector<int32_t> selected;      // sorted distinct valid slots over all rows (within K_t): what the pool must really hold
  std::vector<int64_t> special_rows;  // rows t that must always be judged: empty ones, one key, K_t edges, first and last (sorted, distinct)

  GivenRows given;                   // null: generated
  ValueSpec values;                  // the arithmetic of rows, for whoever makes them element by element
  std::vector<int32_t> needle_keys;  // [T][h_q]: keys of the rows that q points at (needle, tracer), -1 = the row is empty; else empty

  int64_t tokens() const { return c.tokens(); }
  bool is_valid(int32_t index) const { return index >= 0 && index < num_slots; }
  /// Token of the case itself (before permute_batch) that stands at t.
  int64_t source_token(int64_t t) const;
  /// nullptr: no request uses the page.
  const PageUse* page_use(int64_t page) const;
  /// What the content of a slot's row is drawn from, and where it stands in its request (in an unused page: in the page).
  int64_t content_key(int64_t slot) const;
  int32_t position(int64_t slot) const;
  int32_t k_t(int64_t t) const;  // topk_length[t] clamped to [0, topk], else topk
};
/// Throws UsageError for a contradictory case.
Inputs make_inputs(const Case& c, const Variant& variant = {});

/// What a row's content is drawn from (values.h): for whoever generates rows elsewhere, as on a GPU, with kv_value, kv_code, kv_scale and q_value.
struct KvSource {
  int64_t key;
  int32_t position;  // logical; 0 where the family does not ask
};
struct QSource {
  int64_t row;
  uint32_t needle_key;
};
/// Throws UsageError for a format that is not judged yet.
KvSource kv_source(const Inputs& in, int64_t slot);
QSource q_source(const Inputs& in, int64_t t, int32_t h);
/// What poison_row seeds poison_bytes with; and what the bytes behind the last slot of a page, up to the next page, are seeded with.
uint64_t poison_salt(const Inputs& in, int64_t slot);
uint64_t tail_salt(const Inputs& in, int64_t page);

/// Writes the row_bytes of `slot`'s cached token in the case's KV format: bit-identical everywhere. Pure; any slot in [0, num_slots).
void kv_row(const Inputs& in, int64_t slot, uint8_t* row);
/// Writes q[t, h, :] as d_qk 16-bit values of q_dtype. Pure.
void q_row(const Inputs& in, int64_t t, int32_t h, uint16_t* row);
/// Poison of one row's bytes (unselected slots, guard rows): poison_bytes over row_bytes, seeded by case and `salt`.
void poison_row(const Inputs& in, int64_t salt, uint8_t* row);
/// Poison of any bytes. nan: 0xff, a NaN in each of e4m3, fp16, bf16 and fp32 at any alignment. huge: 77 77 f7 f7, finite and huge of either sign in
/// each of them. random: bytes drawn from `salt`. numbers: the same, but of ordinary size in each of them (2^-15 to 2).
void poison_bytes(Poison poison, uint64_t salt, uint8_t* bytes, int64_t n);

/// The slot that q(t, h) points at in `needle` and `tracer`, and how often row t names it. -1: the row is empty.
int64_t needle_slot(const Inputs& in, int64_t t, int32_t h, int32_t* multiplicity = nullptr);
/// The slot whose signs stand in `latent` (d_v values as floats; zero magnitude = undecided), or -1: the tracer's inverse.
int64_t trace_slot(const Inputs& in, const float* latent);

}  // namespace smla
