// SPDX-License-Identifier: Apache-2.0
#include "reports/table.h"

#include "smla_catch.h"

using namespace smla;

TEST_CASE("one table, three ways to print it") {
  Table table{{"name", "µs"}, {}};
  table.add({"a|b", "1.5"});
  table.add({"long name, here", "12"});
  CHECK(table.text() == "name             µs\na|b              1.5\nlong name, here   12\n");
  CHECK(table.markdown() == "| name | µs |\n|---|---|\n| a\\|b | 1.5 |\n| long name, here | 12 |\n");
  CHECK(table.csv() == "name,µs\na|b,1.5\n\"long name, here\",12\n");
  CHECK_THROWS_AS(table.add({"one cell"}), std::logic_error);
}
