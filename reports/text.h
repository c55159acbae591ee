// SPDX-License-Identifier: Apache-2.0
// Text that other programs must be able to read: what a kernel printed may hold any bytes.
#pragma once
#include <regex>
#include <span>
#include <string>
#include <string_view>

namespace smla {

/// Valid UTF-8 on one line: control characters (line feed and NUL among them) become a space, bytes that are no UTF-8 become U+FFFD.
/// `keep_line_feeds`: '\n' and '\t' stay, as XML text and Markdown blocks may hold them.
std::string clean_text(std::string_view text, bool keep_line_feeds = false);

/// For XML text and attribute values: clean_text, then & < > " ' as entities. XML 1.0 has no way to write other control characters.
std::string xml_escape(std::string_view text);

/// For a cell of a Markdown table: clean_text, then '|' and '<' made literal.
std::string markdown_cell(std::string_view text);

/// A regular expression that somebody typed. std::regex recurses once a character and counts in machine words, so both sides are bounded.
class TypedRegex {
 public:
  /// Throws UsageError, saying why, where it is none, or has more than 1000 characters, or a repetition or back reference of more than four digits.
  explicit TypedRegex(const std::string& pattern);
  TypedRegex() : TypedRegex("") {}  // found in everything
  /// Whether it is found in the text. Throws UsageError for one of more than 8192 characters.
  bool found_in(const std::string& text) const;
  /// As it was typed.
  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;
  std::regex regex_;
};

/// Reads a whole file; no device. Throws UsageError "cannot read FILE: why".
std::string read_text_file(const std::string& path);
/// Throws what write_text_file would, as far as that can be known before; writes nothing.
void refuse_unwritable(const std::string& path);
/// Replaces a file in one step (temporary file, rename): a reader sees the old text or the new one. What a link leads to, a device or a pipe is
/// written to where it is. Throws UsageError "cannot write FILE: why".
void write_text_file(const std::string& path, std::string_view text);
/// The same of several pieces, one after another.
void write_file(const std::string& path, std::span<const std::string_view> pieces);

}  // namespace smla
