// SPDX-License-Identifier: Apache-2.0
#include "reports/report_folders.h"

#include <filesystem>

#include "cases/words.h"
#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("a report is where its file is: DIR, DIR/<arch>, or a folder a card") {
  char name[] = "/tmp/smla_report_folders_test_XXXXXX";
  const std::string top = ::mkdtemp(name);
  const auto hold = [&](const std::string& folder) {
    std::filesystem::create_directories(top + folder);
    write_text_file(top + folder + "/a.csv", "");
  };
  const auto found = [&](const std::string& dir, const std::string& arch = "") { return report_folders(top + dir, "a.csv", arch); };
  const auto refused = [&](const std::string& dir, const std::string& arch, const std::string& why) {
    CHECK_THROWS_WITH(found(dir, arch), ContainsSubstring(why));
  };
  using Folders = std::vector<std::string>;

  refused("/nowhere", "", "no a.csv is there, nor in");
  hold("/one/sm_90");
  CHECK(found("/one/sm_90") == Folders{top + "/one/sm_90"});
  CHECK(found("/one") == Folders{top + "/one/sm_90"});
  CHECK(found("/one", "sm_90") == Folders{top + "/one/sm_90"});
  refused("/one", "sm_120", "/one/sm_120");
  hold("/one/cpu_x86_64");
  refused("/one", "", "holds several reports: " + top + "/one/cpu_x86_64, or " + top + "/one/sm_90?");
  CHECK(found("/one", "sm_90") == Folders{top + "/one/sm_90"});

  hold("/cards/gpu1/sm_90");
  hold("/cards/gpu0/sm_90");
  CHECK(found("/cards") == Folders{top + "/cards/gpu0/sm_90", top + "/cards/gpu1/sm_90"});
  CHECK(found("/cards", "sm_90").size() == 2);
  CHECK(found("/cards/gpu1") == Folders{top + "/cards/gpu1/sm_90"});
  hold("/cards/sm_90");  // of an earlier run on one card: which of the two is meant?
  refused("/cards", "sm_90", "holds several reports");
  std::filesystem::remove_all(top);
}
