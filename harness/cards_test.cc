// SPDX-License-Identifier: Apache-2.0
#include "harness/cards.h"

#include "harness/testing/program.h"

using namespace smla;

TEST_CASE("a run over several cards is resumed card by card, and one that it did not reach begins") {
  const Folder out;
  Options options;
  options.gpus = {0, 1};
  options.out = options.resume = out.path;
  for (int seed = 1; seed <= 8; ++seed) options.case_lines.push_back("decode b=1 s_q=1 h_q=8 s_kv=300 topk=100 seed=" + std::to_string(seed));
  std::vector<std::string> asked, resumed;
  const auto note = [&](const Options& one) {
    asked.push_back(one.out);
    resumed.push_back(one.resume);
    return 0;
  };
  CHECK_THROWS_WITH(on_each_card(options, note), ContainsSubstring("--resume " + out.path));
  CHECK(asked.empty());
  std::filesystem::create_directories(out.path + "/gpu0");
  CHECK(on_each_card(options, note) == 0);
  CHECK(asked == std::vector<std::string>{out.path + "/gpu0", out.path + "/gpu1"});
  CHECK(resumed == std::vector<std::string>{out.path + "/gpu0", ""});
}
