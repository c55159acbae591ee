// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4): which file it was, also years later.
#pragma once
#include <string>
#include <string_view>

namespace smla {

/// 64 hex digits.
std::string sha256(std::string_view bytes);
/// Throws UsageError "cannot read FILE: why".
std::string sha256_of_file(const std::string& path);

}  // namespace smla
