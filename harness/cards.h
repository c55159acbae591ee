// SPDX-License-Identifier: Apache-2.0
// Several GPUs: each case is pinned to one by its hash, and one card works at a time, so that nobody is timed beside a busy neighbour.
#pragma once
#include <functional>

#include "harness/options.h"
#include "harness/plan.h"

namespace smla {

/// --gpu all becomes the ordinals of those that are here. Throws CannotStart where there is none.
void resolve_cards(Options& options);
/// Throws CannotStart for a --gpu that is not here.
void cards_must_be_here(const Options& options);

/// Which of `options.gpus` the case runs on: 0 where there are none or one.
size_t card_of(const Options& options, const Case& c);

/// Calls `work` for each card in turn, with that card alone in `gpus` and `keep_case` set, so that plan_cases leaves it its own cases; its reports go
/// to OUT/gpuN/<arch>. Cards without a case are passed over. Returns the worst status, in the order in which statuses rank (exit_status.h); an
/// interrupted one ends it.
int on_each_card(const Options& options, const std::function<int(const Options&)>& work);

}  // namespace smla
