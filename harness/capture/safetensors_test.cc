// SPDX-License-Identifier: Apache-2.0
#include "harness/capture/safetensors.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cases/words.h"
#include "smla_catch.h"

using namespace smla;

namespace {

std::vector<uint8_t> file_of(const std::string& header, const std::string& data, uint64_t length) {
  std::vector<uint8_t> file(8);
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<uint8_t>(length >> (8 * i));
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), data.begin(), data.end());
  return file;
}
std::vector<uint8_t> file_of(const std::string& header, const std::string& data) { return file_of(header, data, header.size()); }

void says(const std::vector<uint8_t>& file, const std::string& text) {
  try {
    parse_safetensors(file, "x.safetensors");
    FAIL("was read, but should say: " + text);
  } catch (const UsageError& error) {
    const std::string what = error.what();
    INFO(what);
    CHECK(what.rfind("x.safetensors: ", 0) == 0);
    CHECK(what.find(text) != std::string::npos);
    CHECK(what.find('\n') == std::string::npos);
  }
}

const std::string kTwo =
    R"({"__metadata__":{"a":"b"},"y":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},"x":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})";

}  // namespace

TEST_CASE("a safetensors file is read") {
  const std::vector<uint8_t> file = file_of(kTwo, "abcdefgh");
  const SafeTensors content = parse_safetensors(file, "x");
  REQUIRE(content.tensors.size() == 2);
  CHECK(content.tensors[0].name == "x");
  CHECK(content.metadata.at("a") == "b");
  const SafeTensor* y = content.find("y");
  REQUIRE(y != nullptr);
  CHECK(y->shape == std::vector<int64_t>{1});
  CHECK(std::memcmp(y->bytes.data(), "efgh", 4) == 0);
  CHECK(content.find("z") == nullptr);
}

TEST_CASE("malformed safetensors files are one clear line") {
  for (size_t n : {size_t{0}, size_t{7}}) says(std::vector<uint8_t>(n), "no safetensors");
  const std::vector<uint8_t> good = file_of(kTwo, "abcdefgh");
  for (size_t n = 0; n < good.size(); ++n) {  // cut anywhere
    INFO(n);
    CHECK_THROWS_AS(parse_safetensors({good.data(), n}, "x"), UsageError);
  }
  says(file_of("{}", "", uint64_t{1} << 63), "no safetensors");
  says(file_of("{}", "", 1000), "cut short");
  says(file_of("{]", ""), "no JSON");
  says(file_of("[]", ""), "no JSON object");
  says(file_of(std::string(100, '['), ""), "too deeply");
  const auto one = [](const std::string& entry, const std::string& data = "abcd") { return file_of("{\"x\":" + entry + "}", data); };
  says(one("3"), "dtype, shape and data_offsets");
  says(one(R"({"dtype":"I32","shape":[1]})"), "dtype, shape and data_offsets");
  says(one(R"({"dtype":"I31","shape":[1],"data_offsets":[0,4]})"), "unknown dtype 'I31'");
  says(one(R"({"dtype":"I32","shape":[2],"data_offsets":[0,4]})"), "the 8 bytes of its shape and dtype are not the 4 bytes");
  says(one(R"({"dtype":"I32","shape":[-1],"data_offsets":[0,4]})"), "whole number");
  says(one(R"({"dtype":"I32","shape":[1.5],"data_offsets":[0,4]})"), "whole number");
  says(one(R"({"dtype":"I32","shape":[4294967296,4294967296],"data_offsets":[0,4]})"), "are not the 4 bytes");
  says(one(R"({"dtype":"I32","shape":[1],"data_offsets":[4,0]})"), "cut short");
  says(one(R"({"dtype":"I32","shape":[1],"data_offsets":[0,18446744073709551615]})"), "cut short");
  says(one(R"({"dtype":"I32","shape":[1],"data_offsets":[0,4]})", "abc"), "cut short");
  says(one(R"({"dtype":"I32","shape":[1],"data_offsets":[0,4]})", "abcdef"), "2 bytes behind");
  says(one(R"({"dtype":"U8","shape":[2],"data_offsets":[2,4]})"), "2 bytes before");
  says(file_of(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", "abcdef"), "overlap");
  says(file_of(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"), "twice");
  says(file_of(R"({"__metadata__":{"a":1}})", ""), "'a' is no text");
  says(file_of("{\"a\nb\":3}", ""), "");
}

TEST_CASE("what is written is read back, or nothing is there") {
  const std::string path = std::filesystem::temp_directory_path() / ("smla_safetensors_test." + std::to_string(getpid()));
  const std::vector<uint8_t> bytes = {1, 2, 3, 4};
  write_safetensors(path, {{{"q", "BF16", {2, 1}, bytes}, {"n", "U8", {4}, bytes}}, {{"k", "v"}}});
  {
    const SafeTensorsFile file(path);
    REQUIRE(file.content().tensors.size() == 2);
    CHECK(file.content().find("q")->shape == std::vector<int64_t>{2, 1});
    CHECK(file.content().metadata.at("k") == "v");
  }
  std::filesystem::remove(path);
  CHECK_THROWS_AS(SafeTensorsFile("/nowhere.safetensors"), UsageError);
  CHECK_THROWS_AS(SafeTensorsFile("/tmp"), UsageError);
  CHECK_THROWS_AS(write_safetensors("/nowhere/x", {}), UsageError);
}
