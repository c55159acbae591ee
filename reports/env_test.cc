// SPDX-License-Identifier: Apache-2.0
#include "reports/env.h"

#include <nlohmann/json.hpp>

#include "smla_catch.h"

using namespace smla;

TEST_CASE("env.json says by what and where") {
  const nlohmann::ordered_json env = nlohmann::ordered_json::parse(environment().dump(2));
  CHECK(env.at("build").at("tool_version").get<std::string>().find('.') != std::string::npos);
  const std::string commit = env.at("build").at("git_commit");
  CHECK((commit.empty() || commit.size() == 40));
  CHECK(commit.empty() == env.at("build").at("git_dirty").is_null());
  CHECK_FALSE(env.at("build").at("compiler").get<std::string>().empty());
  CHECK_FALSE(env.at("machine").at("kernel").get<std::string>().empty());
  CHECK(env.at("machine").at("cpus").get<int>() >= 1);
  CHECK(env.at("machine").at("memory_bytes").get<long long>() > 1 << 20);
  const std::string now = utc_now();
  REQUIRE(now.size() == 20);
  CHECK((now[4] == '-' && now[10] == 'T' && now[13] == ':' && now[19] == 'Z'));
}
