// SPDX-License-Identifier: Apache-2.0
#include "reports/text.h"

#include <unistd.h>

#include <filesystem>

#include "cases/words.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("a typed regular expression finds, and is refused where std::regex would not survive it") {
  CHECK(TypedRegex("h_q=(8|16) ").found_in("decode h_q=16 topk=5"));
  CHECK_FALSE(TypedRegex("h_q=(8|16) ").found_in("decode h_q=64 topk=5"));
  CHECK_THROWS_AS(TypedRegex("("), UsageError);
  CHECK_THROWS_WITH(TypedRegex(std::string(1001, 'a')), ContainsSubstring("1001 characters are too long"));
  CHECK_THROWS_WITH(TypedRegex("a{44444}"), ContainsSubstring("at most four digits"));
  CHECK_THROWS_WITH(TypedRegex("(a|b)*c").found_in(std::string(60000, 'a')), ContainsSubstring("60000 characters is too long"));
}

TEST_CASE("any bytes become UTF-8 on one line") {
  CHECK(clean_text("plain é 日 \xF0\x9F\x98\x80") == "plain é 日 \xF0\x9F\x98\x80");
  CHECK(clean_text(std::string("a\nb\tc\rd\0e\x1B[0m\x7F", 14)) == "a b c d e [0m ");
  CHECK(clean_text("a\nb\tc\r", true) == "a\nb\tc ");
  for (const char* bad : {"\x80", "\xC0\xAF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xF0\x80\x80\x80", "\xE6\x97"}) {
    INFO(bad);
    CHECK(clean_text(bad).find_first_not_of("\xEF\xBF\xBD") == std::string::npos);
    CHECK(clean_text(bad).size() % 3 == 0);
  }
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  CHECK(clean_text(clean_text(every)) == clean_text(every));
  CHECK(clean_text(every).find('\0') == std::string::npos);
}

TEST_CASE("XML and Markdown") {
  CHECK(xml_escape("<a b=\"c\">&'\x01\n") == "&lt;a b=&quot;c&quot;&gt;&amp;&apos; \n");
  CHECK(markdown_cell("a|b <i>\nc") == "a\\|b &lt;i> c");
}

TEST_CASE("a file is replaced whole; what a link leads to is written where it is, and the link stays") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("smla_text_test." + std::to_string(getpid()));
  fs::create_directory(folder);
  const std::string file = folder / "file", link = folder / "link";
  write_text_file(file, "one");
  fs::create_symlink(file, link);
  const std::string_view pieces[] = {"two", "", " halves"};
  write_file(link, pieces);
  CHECK(fs::is_symlink(link));
  CHECK(read_text_file(file) == "two halves");
  const auto refusal = [](auto&& work) -> std::string {
    try {
      work();
    } catch (const UsageError& error) { return error.what(); }
    return "";
  };
  for (const auto& [path, why] :
       {std::pair{file, ""}, {link, ""}, {folder / "fresh", ""}, {folder, "Is a directory"}, {folder / "no" / "x", "No such file"}}) {
    INFO(path);
    CHECK_THAT(refusal([&] { refuse_unwritable(path); }), ContainsSubstring(why));
    CHECK(refusal([&] { refuse_unwritable(path); }).empty() == (why == std::string_view()));
  }
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 2);
  CHECK_THAT(refusal([] { read_text_file("/dev/zero"); }), ContainsSubstring("/dev/zero: is no regular file"));
  fs::remove_all(folder);
}
