// SPDX-License-Identifier: Apache-2.0
#include "kernels/plugin.h"

#include <cstdio>
#include <fstream>

#include "cases/words.h"
#include "kernels/door.h"
#include "smla_catch.h"

namespace smla {
namespace {

std::string path_of(const std::string& name) { return PLUGIN_DIR "/" + name + ".so"; }

std::string error_of(const std::string& path) {
  try {
    Plugin plugin(path);
  } catch (const UsageError& error) { return error.what(); }
  return "loaded";
}

TEST_CASE("a sound library in plain C is loaded, and its kernels answer through the door") {
  const Plugin plugin(path_of("sound"));
  REQUIRE(plugin.kernels().size() == 2);
  const smla_kernel& first = plugin.find("mine_first");
  CHECK(&plugin.find("mine.second-1+x") == plugin.kernels()[1]);
  CHECK_THROWS_WITH(plugin.find("mine_frist"), ContainsSubstring("sound.so") && ContainsSubstring("did you mean 'mine_first'?"));

  const smla_problem problem = {};
  CHECK(declines(first, problem) == "never");
  CHECK(contract(first, problem) == reference_contract());
  CHECK(splits_used(first, problem) == 0);
  CHECK(launch(first, problem, {}, nullptr) == "returned 7");  // its struct ends before last_error
}

TEST_CASE("a broken library says what is wrong with it") {
  const std::pair<const char*, const char*> kBroken[] = {
      {"wrong_abi", "ABI 99, this program speaks ABI 1"},
      {"small_library", "struct_size 8 in smla_library"},
      {"small_kernel", "kernel 2 of 2 has struct_size 40"},
      {"no_symbol", "exports no smla_get_library"},
      {"null_library", "smla_get_library returned null"},
      {"null_kernel", "kernel 2 of 2 is a null pointer"},
      {"no_kernels", "holds no kernel"},
      {"no_supports", "('mine.second-1+x') has no supports"},
      {"bad_device", "unknown device 5"},
      {"bad_name", "'Mine Second': a name is made of [a-z0-9_.+-]"},
      {"no_name", "has the name ''"},
      {"duplicate", "kernels 1 and 2 are both called 'mine_first'"},
      {"collision", "is called 'cpu_split', as a built-in kernel is"},
  };
  for (const auto& [name, text] : kBroken) {
    INFO(name);
    CHECK_THAT(error_of(path_of(name)), ContainsSubstring(text) && ContainsSubstring(std::string(name) + ".so"));
  }
  CHECK_THAT(error_of(path_of("nowhere")), ContainsSubstring("nowhere.so: cannot be loaded"));
  const std::string text_file = PLUGIN_DIR "/text.so";
  std::ofstream(text_file) << "not a library\n";
  CHECK_THAT(error_of(text_file), ContainsSubstring("text.so: cannot be loaded"));
}

TEST_CASE("a contract with an undefined value is refused by name") {
  const Plugin plugin(path_of("bad_contract"));
  CHECK_THROWS_WITH(contract(plugin.find("mine.second-1+x"), smla_problem{}), ContainsSubstring("contract.lse_base = 9 is not defined (0 to 1)"));
}

}  // namespace
}  // namespace smla
