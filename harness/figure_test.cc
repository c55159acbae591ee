// SPDX-License-Identifier: Apache-2.0
#include "harness/figure.h"

#include <cmath>
#include <limits>

#include "smla_catch.h"

using namespace smla;

TEST_CASE("a figure reads as on the side of its limit where it is") {
  CHECK(fixed_beside(0.5, 1) == "0.50");
  CHECK(fixed_beside(1.0004, 1) == "1.0004");
  CHECK(fixed_beside(1.0000004, 1) == "1.0000004");
  CHECK(fixed_beside(0.996, 1) == "0.996");
  CHECK(fixed_beside(1, 1) == "1.00");
  CHECK(fixed_beside(0.8502, 0.85, 3) == "0.8502");
  CHECK(figure_beside(6.0001, 6) == "6.0001");
  CHECK(figure_beside(5.99999, 6) == "5.99999");
  CHECK(figure_beside(421.234, 6) == "421");
  CHECK(figure_beside(1234.5, 1235, 3) == "1.23e+03");
  CHECK(figure_beside(6, 6) == "6");
  CHECK(figure_beside(std::nextafter(1.0, 2.0), 1) == "1.0000000000000002");
  CHECK(fixed_beside(std::numeric_limits<double>::infinity(), 1) == "inf");
  CHECK_THAT(fixed_beside(std::numeric_limits<double>::quiet_NaN(), 1), ContainsSubstring("nan"));
}
