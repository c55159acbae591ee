// SPDX-License-Identifier: Apache-2.0
#include "reports/sha256.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>

#include "reports/text.h"

namespace smla {
namespace {

using State = std::array<uint32_t, 8>;

/// The first 32 bits of the fractional part of the p-th root (2 or 3) of the n-th prime: integer roots, so no floating point decides.
consteval uint32_t root_bits(int n, int p) {
  int prime = 2;
  for (int seen = 0;; ++prime) {
    bool divides = false;
    for (int d = 2; d * d <= prime; ++d) divides |= prime % d == 0;
    if (!divides && seen++ == n) break;
  }
  using Wide = unsigned __int128;
  Wide root = 0;  // floor(prime^(1/p) * 2^32), bit by bit
  for (int bit = 36; bit >= 0; --bit) {
    const Wide next = root | Wide{1} << bit;
    // prime * 2^(32 p) >= next^p; for p = 3 both sides fit in 128 bits
    if (p == 2 ? next * next <= Wide(prime) << 64 : next * next * next <= Wide(prime) << 96) root = next;
  }
  return static_cast<uint32_t>(root);
}

template <size_t N, int Root>
consteval std::array<uint32_t, N> roots() {
  std::array<uint32_t, N> all{};
  for (size_t i = 0; i < N; ++i) all[i] = root_bits(static_cast<int>(i), Root);
  return all;
}
constexpr State kStart = roots<8, 2>();
constexpr std::array<uint32_t, 64> kRound = roots<64, 3>();

void absorb(State& state, const unsigned char* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const State mixed{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += mixed[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  State state = kStart;
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 64; left -= 64, at += 64) absorb(state, at);
  std::string tail(reinterpret_cast<const char*>(at), left);
  tail += '\x80';
  tail.resize(tail.size() + (120 - tail.size() % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) tail += static_cast<char>(uint64_t{bytes.size()} * 8 >> shift);
  for (size_t i = 0; i < tail.size(); i += 64) absorb(state, reinterpret_cast<const unsigned char*>(tail.data()) + i);
  std::string hex;
  for (uint32_t word : state) hex += fmt::format("{:08x}", word);
  return hex;
}

std::string sha256_of_file(const std::string& path) { return sha256(read_text_file(path)); }

}  // namespace smla
