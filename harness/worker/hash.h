// SPDX-License-Identifier: Apache-2.0
// A 64-bit hash for "are these bytes the same": a change of one 64-bit word always changes it. Not for keys, not against an adversary.
#pragma once
#include <cstdint>
#include <cstring>

#include "cases/values.h"

namespace smla {

/// Four independent lanes, each a chain of bijections of its words.
inline uint64_t hash_bytes(const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  uint64_t lanes[4] = {1, 2, 3, 4};
  auto absorb = [&](int lane, uint64_t word) {
    uint64_t x = (lanes[lane] ^ word) * 0x9e3779b97f4a7c15u;
    lanes[lane] = (x << 29) | (x >> 35);
  };
  int64_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    uint64_t words[4];
    std::memcpy(words, at + i, 32);
    for (int lane = 0; lane < 4; ++lane) absorb(lane, words[lane]);
  }
  for (int lane = 0; i < bytes; i += 8, ++lane) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, static_cast<size_t>(bytes - i < 8 ? bytes - i : 8));
    absorb(lane, word);
  }
  uint64_t h = static_cast<uint64_t>(bytes);
  for (uint64_t lane : lanes) h = mix64(h ^ lane);
  return h;
}

/// What piece number `index` of a sequence adds to its hash: a sum, so that pieces may be hashed in any order.
inline uint64_t hash_piece(const void* data, int64_t bytes, int64_t index) {
  return mix64(hash_bytes(data, bytes) ^ mix64(static_cast<uint64_t>(index) + 0x9e3779b97f4a7c15u));
}

}  // namespace smla
