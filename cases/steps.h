// SPDX-License-Identifier: Apache-2.0
// The steps of make_inputs (inputs.cc), in the order in which they are taken. Each reads and changes an Inputs under construction.
#pragma once
#include "cases/inputs.h"
#include "cases/pages.h"

namespace smla {

/// Row t of request r, query j, selects from positions [0, n), n = max(0, length of r - s_q + j + 1).
int32_t selectable_positions(const Inputs& in, int64_t t);
/// Where a sensitivity check changes a part of an argument: every second of `count` things, the last one included.
inline bool is_touched(int64_t i, int64_t count) { return i % 2 == (count - 1) % 2; }

/// lists.cc: indices and topk_length of the case itself.
void make_lists(Inputs& in, const PageMap& pages);
/// needle.cc: needle_keys, from the lists of the case itself. needle: another position of the lists for each (t, h), those first that kernels lose
/// (README.md, "Which entries a needle asks"); needle0 of them are passed over. tracer: a random entry.
void choose_needles(Inputs& in);
/// changes.cc: what the variant does to the lists; remap_pages and reverse_batch apart, because they come after what the pages decide.
void change_lists(Inputs& in);
void remap_pages(Inputs& in, const PageMap& from, const PageMap& to);
void reverse_batch(Inputs& in);
/// describe.cc: flags, valid_keys, selected, special_rows, from what the lists turned out to be.
void describe(Inputs& in);

}  // namespace smla
