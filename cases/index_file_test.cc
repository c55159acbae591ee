// SPDX-License-Identifier: Apache-2.0
#include "cases/index_file.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cases/inputs.h"
#include "smla_catch.h"

using namespace smla;

namespace {

template <class T>
std::string npy(const std::string& header, const std::vector<T>& values, char version = 1) {
  std::string text = header + "\n", file = std::string("\x93NUMPY") + version + std::string(1, '\0');
  file += static_cast<char>(text.size() & 255);
  file += static_cast<char>(text.size() >> 8);
  if (version > 1) file += std::string(2, '\0');
  return file + text + std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
const std::string kHeader = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }";
const std::vector<int32_t> kSix = {0, 1, 2, 7, -1, 5};

std::string refused(const std::string& bytes) {
  try {
    parse_index_file(bytes, "x.npy");
    return "was read";
  } catch (const UsageError& e) { return e.what(); }
}

struct TempFile {
  explicit TempFile(const std::string& bytes) : path(std::filesystem::temp_directory_path() / ("smla_index_file_test." + std::to_string(getpid()))) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~TempFile() { std::remove(path.c_str()); }
  std::string path;
};

}  // namespace

TEST_CASE("an .npy file is read as rows of positions") {
  const IndexFile file = parse_index_file(npy(kHeader, kSix), "x");
  CHECK(file.rows == 2);
  CHECK(file.columns == 3);
  CHECK(file.positions == kSix);
  const IndexFile wide = parse_index_file(npy<int64_t>("{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2, 2)}", {3, -7, 0, 1}, 2), "x");
  CHECK(wide.rows == 2);
  CHECK(wide.positions == std::vector<int32_t>{3, -1, 0, 1});
}

TEST_CASE("a malformed .npy file is one clear line") {
  const std::string good = npy(kHeader, kSix);
  const auto says = [](const std::string& bytes, const std::string& text) {
    INFO(refused(bytes));
    CHECK(refused(bytes).find(text) != std::string::npos);
    CHECK(refused(bytes).rfind("x.npy: ", 0) == 0);
  };
  for (size_t n : {size_t{0}, size_t{5}, size_t{9}, size_t{20}, good.size() - 1}) {
    INFO(n);
    CHECK(refused(good.substr(0, n)).rfind("x.npy: ", 0) == 0);
  }
  says("hello, this is text", "no .npy");
  says(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", kSix), "<f4");
  says(npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3)}", kSix), "Fortran");
  says(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 4)}", kSix), "shape needs");
  says(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2, -3)}", kSix), "shape");
  says(npy("{'descr': '<i4', 'fortran_order': False, 'shape': ()}", kSix), "shape");
  says(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 3)}", kSix), "empty");
  says(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", kSix), "shape needs");
  says(npy<int64_t>("{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", {int64_t{1} << 40}), "no position");
}

TEST_CASE("pattern=file takes the lists from the file, holes and all, through the page table") {
  const TempFile file(npy(kHeader, kSix));
  const Case c = parse_line("decode b=3 s_kv=8 topk=4 page_size=4 pattern=file:" + file.path);
  CHECK(parse_line(to_line(c)) == c);
  CHECK(case_value(c, "pattern") == "file:" + file.path);
  const Inputs in = make_inputs(c);
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t i = 0; i < 4; ++i) {
      const int32_t slot = in.indices[static_cast<size_t>(t * 4 + i)], wanted = i < 3 ? kSix[static_cast<size_t>(t % 2 * 3 + i)] : -1;
      CHECK((slot < 0 ? -1 : in.position(slot)) == wanted);
      if (slot >= 0) CHECK(in.page_use(slot / 4)->owner == t);
    }
  CHECK(in.valid_keys == 8);
}

TEST_CASE("what a file pattern cannot be is a mistake of the line or the file") {
  const TempFile file(npy(kHeader, kSix));
  const auto says = [&](const std::string& line, const std::string& text) {
    INFO(line);
    try {
      make_inputs(parse_line(line));
      FAIL("was made");
    } catch (const UsageError& e) {
      INFO(e.what());
      CHECK(std::string(e.what()).find(text) != std::string::npos);
    }
  };
  says("decode pattern=file", "pattern=file:PATH");
  says("decode pattern=file:", "pattern=file:PATH");
  says("decode pattern=file:a,b.npy", "commas");
  says("decode pattern=file:/dev/zero", "/dev/zero: is no regular file");
  says("decode pattern=file:/nowhere.npy", "/nowhere.npy: No such file or directory");
  says("decode b=2 lens=mixed pattern=file:" + file.path, "lens");
  says("decode b=2 s_kv=7 topk=4 pattern=file:" + file.path, "row 1 names position 7");
}

TEST_CASE("statistics of the last position that there can be") {
  IndexFile file;
  file.rows = 1;
  file.columns = 2;
  file.positions = {2147483647, 5};
  CHECK(statistics_of(file, 64).run_max == 1);
}

TEST_CASE("statistics of lists") {
  IndexFile file;
  file.rows = 4;
  file.columns = 6;
  file.positions = {0,  1,  2,  64, 65,  -1,   // runs 3 and 2, pages 0 and 1, invalid behind
                    1,  0,  -1, 64, 200, 200,  // interleaved, a position twice
                    -1, -1, 5,  6,  7,   8,    // leading
                    -1, -1, -1, -1, -1,  -1};  // empty
  const IndexStatistics s = statistics_of(file, 64);
  CHECK(s.valid == 14);
  CHECK(s.valid_min == 0);
  CHECK(s.valid_max == 5);
  CHECK(s.empty_rows == 1);
  CHECK(s.duplicate_rows == 1);
  CHECK(s.ascending_rows == 2);
  CHECK(s.run_max == 4);
  CHECK(s.run_mean == Approx(14.0 / 8));
  CHECK(s.pages_mean == Approx((2 + 3 + 1 + 0) / 4.0));
  CHECK(s.keys_a_page == Approx(14.0 / 6));
  CHECK(s.reuse == Approx(3.0 / 8));  // of {0 1 64 200} three, of {5 6 7 8} none
  CHECK(s.tail_only_rows == 2);
  CHECK(s.leading_rows == 1);
  CHECK(s.interleaved_rows == 1);
  CHECK(s.least == 0);
  CHECK(s.largest == 200);
}
