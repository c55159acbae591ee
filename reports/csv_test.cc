// SPDX-License-Identifier: Apache-2.0
#include "reports/csv.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "cases/words.h"
#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

namespace {

struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    char name[] = "/tmp/smla_csv_test_XXXXXX";
    path = ::mkdtemp(name);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::string operator/(const char* name) const { return path + "/" + name; }
};

using Cells = std::vector<std::string>;

void refused(const std::string& text, const std::string& why) {
  INFO(text);
  CHECK_THROWS_WITH(parse_csv(text, "r.csv"), ContainsSubstring(why));
  CHECK_THROWS_AS(parse_csv(text, "r.csv"), UsageError);
}

}  // namespace

TEST_CASE("a line quotes only what it must, and parses back") {
  CHECK(csv_line({"a", "", "b c", "1.5"}) == "a,,b c,1.5\n");
  CHECK(parse_csv(csv_line({"\xef\xbb\xbf", "k"}), "r.csv").header == Cells{"\xef\xbb\xbf", "k"});
  CHECK(csv_line({"p=bf16,part=fp32", "say \"x\"", ""}) == "\"p=bf16,part=fp32\",\"say \"\"x\"\"\",\n");
  const std::vector<Cells> rows{{"", "", ""}, {"\"", ",", "\"\""}, {"a\"b", "x,y,z", " spaces kept "}, {"\",\"", "\t", "é"}, {",", "", "\"a\""}};
  std::string text = csv_line({"k1", "k2", "k3"});
  for (const Cells& row : rows) text += csv_line(row);
  const Csv csv = parse_csv(text, "r.csv");
  CHECK(csv.header == Cells{"k1", "k2", "k3"});
  CHECK(csv.rows == rows);
  CHECK_FALSE(csv.torn);
  CHECK(csv.whole_bytes == text.size());
}

TEST_CASE("a torn tail is left out at every length") {
  const std::string text = "a,b\n1,2\n3,\"4,4\"\n";
  for (size_t length = 0; length <= text.size(); ++length) {
    const Csv csv = parse_csv(text.substr(0, length), "r.csv");
    const size_t lines = length >= text.size() ? 3 : length >= 8 ? 2 : length >= 4 ? 1 : 0;
    INFO(length);
    CHECK(csv.header.size() == (lines > 0 ? 2 : 0));
    CHECK(csv.rows.size() == (lines > 0 ? lines - 1 : 0));
    CHECK(csv.torn == (length != 0 && length != 4 && length != 8 && length != text.size()));
  }
}

TEST_CASE("damage is refused with file and line") {
  refused("a,b\n1,2\r\n", "r.csv:2: carriage return");
  refused(
      "\xEF\xBB\xBF"
      "a,b\n1,2\n",
      "r.csv:1: starts with a byte order mark");
  refused(std::string("a,b\n1,2\n1,\0"
                      "2\n",
                      13),
          "r.csv:3: NUL byte");
  refused("a,b\n1,2\n1,5,2\n", "r.csv:3: 3 cells, the header has 2");
  refused("a,b\n\n", "r.csv:2: 1 cells, the header has 2");
  refused("a,b\n1,\"2\n", "r.csv:2: cell 2: a quote is not closed");
  refused("a,b\n\"1\"x,2\n", "r.csv:2: cell 1: text beside a quoted cell");
  refused("a,b\n1,2\"\"\n", "r.csv:2: cell 2: text beside a quoted cell");
}

TEST_CASE("a file is created, continued, and its columns are kept") {
  const TemporaryFolder folder;
  const std::string path = folder / "r.csv";
  { CsvAppender(path, {"id", "v"}, {"id"}).append({{"x", "1"}, {"x", "2"}}); }
  { CsvAppender(path, {"id", "v"}, {"id"}).append({{"y", "a,b"}}); }
  CHECK(read_text_file(path) == "id,v\nx,1\nx,2\ny,\"a,b\"\n");
  CHECK_THROWS_WITH(CsvAppender(path, {"id", "w"}, {"id"}), ContainsSubstring("its columns are not those"));
  {
    CsvAppender file(path, {"id", "v"}, {"id"});
    CHECK_THROWS_WITH(CsvAppender(path, {"id", "v"}, {"id"}), ContainsSubstring("another run is writing it"));
    CHECK_THROWS_AS(file.append({{"too", "many", "cells"}}), std::logic_error);
    file.drop_last(1);
    file.append({{"z", "3"}});
    CHECK_THROWS_AS(file.drop_last(4), std::logic_error);
  }
  CHECK(read_text_file(path) == "id,v\nx,1\nx,2\nz,3\n");
}

TEST_CASE("continuing cuts a torn line and the unit it belonged to") {
  const TemporaryFolder folder;
  const std::string path = folder / "r.csv", whole = "id,v\nx,1\nx,2\n", unit = "y,1\ny,2\n";
  for (size_t length = 1; length < unit.size(); ++length) {
    write_text_file(path, whole + unit.substr(0, length));
    CsvAppender(path, {"id", "v"}, {"id"}).append({{"y", "1"}, {"y", "2"}});
    INFO(length);
    const Csv csv = read_csv(path);
    REQUIRE_FALSE(csv.rows.empty());
    if (length == 4) continue;  // the tear fell on a line end: nothing shows it (the next test)
    // What is left of y is gone. If no row of y was whole, nothing names the torn unit, and the unit before it is measured again as well.
    CHECK(read_text_file(path) == (length < 4 ? "id,v\ny,1\ny,2\n" : whole + unit));
  }
  write_text_file(path, "id,");  // killed in the header
  CsvAppender(path, {"id", "v"}, {"id"}).append({{"y", "1"}});
  CHECK(read_text_file(path) == "id,v\ny,1\n");
}

TEST_CASE("where no more can be written the file stays whole") {
  const TemporaryFolder folder;
  const std::string path = folder / "r.csv";
  CsvAppender file(path, {"id", "v"}, {"id"});
  file.append({{"x", "1"}});
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit old, small;
  ::getrlimit(RLIMIT_FSIZE, &old);
  small = {20, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS_WITH(file.append({{"y", "a long row that does not fit"}}), ContainsSubstring("r.csv: File too large; the rows before are whole"));
  ::setrlimit(RLIMIT_FSIZE, &old);
  CHECK(read_text_file(path) == "id,v\nx,1\n");
  file.append({{"y", "2"}});
  CHECK(read_text_file(path) == "id,v\nx,1\ny,2\n");
}

TEST_CASE("what cannot be opened is named with the reason") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(read_csv(folder / "none.csv"), ContainsSubstring("cannot read " + folder.path + "/none.csv: No such file or directory"));
  ::mkdir((folder / "r.csv").c_str(), 0755);
  CHECK_THROWS_WITH(CsvAppender(folder / "r.csv", {"a"}, {}), ContainsSubstring("cannot append to " + folder.path + "/r.csv: Is a directory"));
  CHECK_THROWS_WITH(read_csv(folder / "r.csv"), ContainsSubstring("Is a directory"));
  CHECK_THROWS_WITH(CsvAppender(folder / "no/r.csv", {"a"}, {}), ContainsSubstring("No such file or directory"));
}
