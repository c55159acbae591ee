// SPDX-License-Identifier: Apache-2.0
// Catch2 2.13 (Debian 12) and 3.4 (Ubuntu 24.04) under one include. Catch2 2 has no SKIP: a test that needs a GPU is an executable of its own that
// exits 77.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
}  // namespace Catch::Matchers
using Catch::Matchers::ContainsSubstring;
#endif
