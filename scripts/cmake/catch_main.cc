// SPDX-License-Identifier: Apache-2.0
// Catch2 2.13 (Debian 12) needs a main of ours; with Catch2 3 this file is not built.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
