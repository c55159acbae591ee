// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/released_memory.h"

#include <vector>

#include "smla_catch.h"

using namespace smla;

namespace {
std::vector<std::byte*> given_back;
}

TEST_CASE("released memory is taken again by its size, and the oldest goes when there is too much") {
  std::byte memory[5];
  given_back.clear();
  {
    ReleasedMemory released(100, [](std::byte* at, int64_t) { given_back.push_back(at); });
    CHECK(released.take(40) == nullptr);
    released.keep(memory + 0, 40);
    released.keep(memory + 1, 20);
    released.keep(memory + 2, 40);
    CHECK(released.bytes() == 100);
    CHECK(released.take(30) == nullptr);
    CHECK(released.take(40) == memory + 2);  // last in, first out: its pages are the warmest
    CHECK(released.bytes() == 60);
    released.keep(memory + 3, 41);
    CHECK(given_back == std::vector{memory + 0});
    CHECK(released.take(40) == nullptr);
    released.keep(memory + 4, 101);  // more than is ever held
    CHECK(given_back == std::vector{memory + 0, memory + 4});
    CHECK(released.bytes() == 61);
    released.give_back_beyond(41);
    CHECK(given_back == std::vector{memory + 0, memory + 4, memory + 1});
  }
  CHECK(given_back == std::vector{memory + 0, memory + 4, memory + 1, memory + 3});
}
