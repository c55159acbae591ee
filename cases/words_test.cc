// SPDX-License-Identifier: Apache-2.0
#include "cases/words.h"

#include "smla_catch.h"

using namespace smla;

TEST_CASE("every word of a vocabulary reads back to its value") {
  for (const std::string_view name : Names<Pattern>::kAll) CHECK(name_of(parse_enum<Pattern>("pattern", name)) == name);
  for (const std::string_view name : Names<Values>::kAll) CHECK(name_of(parse_enum<Values>("values", name)) == name);
  for (const std::string_view name : Names<Status>::kAll) CHECK(name_of(parse_enum<Status>("status", name)) == name);
  CHECK(name_of(Pattern::far) == "far");
  CHECK(name_of(Values::tiny) == "tiny");
  CHECK(name_of(Status::invalid) == "invalid");
}

TEST_CASE("the nearest name is suggested, and none where nothing is near") {
  static constexpr std::string_view kNames[] = {"scattered", "sorted", "b"};
  CHECK(nearest("scaterd", kNames, 3) == "scattered");
  CHECK(nearest("sortd", kNames, 3) == "sorted");
  CHECK(nearest("c", kNames, 3) == "b");
  CHECK(nearest("quantum_foam", kNames, 3).empty());
  CHECK_THROWS_WITH(parse_enum<Lens>("lens", "ful"), "lens: unknown value 'ful'; did you mean 'full'?");
  CHECK_THROWS_WITH(parse_enum<Lens>("lens", "zz"), "lens: unknown value 'zz'; known: full mixed");
}
