// SPDX-License-Identifier: Apache-2.0
// The examples of FIPS 180-4 and its companion documents, and every length around a block's end.
#include "reports/sha256.h"

#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("SHA-256 of known messages") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  std::string all;  // the hash of the hashes of 0 .. 130 zero bytes, as sha256sum computes it
  for (size_t n = 0; n <= 130; ++n) all += sha256(std::string(n, '\0')) + "\n";
  CHECK(sha256(all) == "cae7459b654a4c6f77d3a89ef92aa36963cc64b35ca6e1206027ce1f25a6fe82");
}

TEST_CASE("SHA-256 of a file") {
  CHECK(sha256_of_file("/proc/self/exe") == sha256(read_text_file("/proc/self/exe")));
  CHECK_THROWS_WITH(sha256_of_file("/nowhere"), ContainsSubstring("/nowhere"));
}
