// SPDX-License-Identifier: Apache-2.0
// needle and tracer: which row of the cache each query points at. The public questions are needle_slot and trace_slot (inputs.h).
#pragma once
#include "cases/inputs.h"

namespace smla {

/// Fills in.needle_keys from the lists of the case itself. needle: valid entry number (needle0 + t * h_q + h) modulo their number, the entries at the
/// edges of tiles counted first. tracer: a random one.
void choose_needles(Inputs& in);

/// The inverse of mix32.
uint32_t unmix32(uint32_t h);

}  // namespace smla
