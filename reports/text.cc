// SPDX-License-Identifier: Apache-2.0
#include "reports/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cases/input_file.h"
#include "cases/words.h"

namespace smla {
namespace {

/// Bytes of the UTF-8 sequence that starts at text[i]; 0 if there is none (overlong forms, surrogates and stray continuation bytes included).
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return k < text.size() ? static_cast<uint8_t>(text[k]) : uint8_t{0}; };
  const auto tail = [&](size_t k) { return (byte(k) & 0xC0) == 0x80; };
  const uint8_t lead = byte(i), second = byte(i + 1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(i + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!tail(i + 1) || !tail(i + 2) || (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!tail(i + 1) || !tail(i + 2) || !tail(i + 3) || (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

UsageError cannot(const char* what, const std::string& path) { return UsageError(fmt::format("cannot {} {}: {}", what, path, std::strerror(errno))); }

}  // namespace

std::string clean_text(std::string_view text, bool keep_line_feeds) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const auto c = static_cast<uint8_t>(text[i]);
    if (length == 0) clean += "\xEF\xBF\xBD";
    else if (length == 1 && (c < 0x20 || c == 0x7F) && !(keep_line_feeds && (c == '\n' || c == '\t'))) clean += ' ';
    else clean += text.substr(i, length);
    i += length == 0 ? 1 : length;
  }
  return clean;
}

std::string xml_escape(std::string_view text) {
  std::string escaped;
  for (char c : clean_text(text, true)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&apos;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (char c : clean_text(text)) {
    if (c == '|') cell += "\\|";
    else if (c == '<') cell += "&lt;";
    else cell += c;
  }
  return cell;
}

TypedRegex::TypedRegex(const std::string& pattern) : pattern_(pattern) {
  constexpr size_t kLongest = 1000, kMostDigits = 4;
  if (pattern.size() > kLongest)
    throw UsageError(fmt::format("{} characters are too long for a regular expression, {} at most", pattern.size(), kLongest));
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' && pattern[i] != '{' && pattern[i] != ',') continue;
    const size_t end = pattern.find_first_not_of("0123456789", i + 1);
    if (std::min(end, pattern.size()) - i - 1 > kMostDigits) throw UsageError("a number of a regular expression has at most four digits");
  }
  try {
    regex_ = std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) { throw UsageError(error.what()); }
}

bool TypedRegex::found_in(const std::string& text) const {
  constexpr size_t kLongest = 8192;
  if (text.size() > kLongest)
    throw UsageError(fmt::format("a line of {} characters is too long for a regular expression, {} at most", text.size(), kLongest));
  return std::regex_search(text, regex_);
}

std::string read_text_file(const std::string& path) {
  struct stat is {};
  if (::stat(path.c_str(), &is) == 0 && (S_ISCHR(is.st_mode) || S_ISBLK(is.st_mode)))  // may have no end
    throw UsageError(fmt::format("cannot read {}: is no regular file", path));
  std::string text;
  if (!read_whole_file(path, text)) throw cannot("read", path);
  return text;
}

void refuse_unwritable(const std::string& path) {
  struct stat there {};
  const bool exists = ::lstat(path.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) errno = EISDIR;
  else if (exists && !S_ISREG(there.st_mode)) {
    if (::access(path.c_str(), W_OK) == 0) return;
  } else {  // a new file takes its place: the folder decides
    const std::string folder = std::filesystem::path(path).parent_path().string();
    if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0) return;
  }
  throw cannot("write", path);
}

void write_text_file(const std::string& path, std::string_view text) { write_file(path, std::span(&text, 1)); }

void write_file(const std::string& path, std::span<const std::string_view> pieces) {
  struct stat there {};
  const bool in_place = ::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode);  // /dev/null or /dev/stdout must not become a file
  const std::string target = in_place ? path : fmt::format("{}.{}.tmp", path, ::getpid());
  const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw cannot("write", path);
  bool ok = true;
  for (std::string_view left : pieces)
    while (ok && !left.empty()) {
      const ssize_t n = ::write(fd, left.data(), left.size());
      if (n >= 0) left.remove_prefix(static_cast<size_t>(n));
      else ok = errno == EINTR;
    }
  int error = errno;
  if (::close(fd) != 0 && ok) ok = false, error = errno;
  if (in_place && ok) return;
  if (ok && std::rename(target.c_str(), path.c_str()) != 0) ok = false, error = errno;
  if (ok) return;
  if (!in_place) ::unlink(target.c_str());
  errno = error;
  throw cannot("write", path);
}

}  // namespace smla
