// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "cases/inputs.h"

namespace smla {

void poison_bytes(Poison poison, uint64_t salt, uint8_t* bytes, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) {
    const uint64_t word = poison_word(poison, salt, i);
    memcpy(bytes + i, &word, n - i < 8 ? n - i : 8);
  }
}

uint64_t poison_salt(const Inputs& in, int64_t slot) { return draw_at(stream(in.c.seed, Draw::poison), slot); }

uint64_t tail_salt(const Inputs& in, int64_t page) { return poison_salt(in, in.num_slots + 1 + page); }

void poison_row(const Inputs& in, int64_t salt, uint8_t* row) { poison_bytes(in.variant.poison, poison_salt(in, salt), row, in.row_bytes); }

}  // namespace smla
