// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "cases/inputs.h"

namespace smla {

void poison_bytes(Poison poison, uint64_t salt, uint8_t* bytes, int64_t n) {
  if (poison == Poison::nan) {
    memset(bytes, 0xff, n);
    return;
  }
  for (int64_t i = 0; i < n; i += 8) {
    const uint64_t word = poison == Poison::huge ? 0xf7f77777f7f77777u : draw_at(salt, i);
    memcpy(bytes + i, &word, n - i < 8 ? n - i : 8);
  }
}

void poison_row(const Inputs& in, int64_t salt, uint8_t* row) {
  poison_bytes(in.variant.poison, draw_at(stream(in.c.seed, Draw::poison), salt), row, in.row_bytes);
}

}  // namespace smla
