// SPDX-License-Identifier: Apache-2.0
#include "reference/parallel.h"

#include <stdexcept>

#include "smla_catch.h"

namespace smla {
namespace {

TEST_CASE("every index runs once, on a worker within bounds") {
  for (const int threads : {1, 3, 50}) {
    std::vector<std::atomic<int>> ran(17);
    std::atomic<bool> out_of_bounds = false;
    parallel_for(threads, 17, [&](int64_t i, int worker) {
      ++ran[i];
      if (worker < 0 || worker >= threads) out_of_bounds = true;
    });
    for (const auto& count : ran) CHECK(count == 1);
    CHECK_FALSE(out_of_bounds);
  }
  parallel_for(4, 0, [](int64_t, int) { FAIL("nothing to do"); });
}

TEST_CASE("an exception reaches the caller and stops the rest") {
  for (const int threads : {1, 4}) {
    std::atomic<int> ran = 0;
    CHECK_THROWS_WITH(parallel_for(threads, 100000,
                                   [&](int64_t i, int) {
                                     ++ran;
                                     if (i == 3) throw std::runtime_error("index 3");
                                   }),
                      "index 3");
    CHECK(ran < 100000);
  }
}

}  // namespace
}  // namespace smla
