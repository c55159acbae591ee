// SPDX-License-Identifier: Apache-2.0
// Flags of one verb: each with its unit, its bounds and its default in the help, and mistakes that are one line. CLI11 does the reading.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace smla {

/// 3% and 0.03 are the same share. A bare number from 1 on is refused: 3 may mean 3 % or 300 %. Throws UsageError, naming `flag`, also beyond
/// [0, `most`].
double parse_share(std::string_view flag, std::string_view text, double most);
/// Seconds above 0, without a unit. Throws UsageError.
double parse_seconds(std::string_view flag, std::string_view text);
/// A whole number. Throws UsageError.
int64_t parse_count(std::string_view flag, std::string_view text, int64_t least, int64_t most = INT64_MAX);
/// A factor of at least 0. Throws UsageError.
double parse_times(std::string_view flag, std::string_view text);
/// "3%"
std::string share_text(double share);

/// What is given replaces the value; what the value was before is the default that the help tells, unless `by_default` says it in words.
class Flags {
 public:
  /// `program`: as it was started, in shell words; `verb` as errors name it.
  Flags(std::string what, std::string program, std::string verb);
  ~Flags();

  void group(const std::string& name);
  /// A word that must be given, in its place.
  void positional(const std::string& name, std::string& value, const std::string& what);
  void parsed(const std::string& flag, const std::string& type, const std::string& what, const std::string& by_default,
              std::function<void(const std::string&)> parse);
  void text(const std::string& flag, std::string& value, const std::string& type, const std::string& what, const std::string& by_default = "");
  /// May be given several times.
  void texts(const std::string& flag, std::vector<std::string>& values, const std::string& type, const std::string& what,
             const std::string& by_default = "");
  template <class T>
  void count(const std::string& flag, T& value, int64_t least, const std::string& what, const std::string& by_default = "") {
    parsed(flag, "N", what, by_default.empty() ? std::to_string(value) : by_default,
           [flag, &value, least](const std::string& text) { value = static_cast<T>(parse_count(flag, text, least, std::numeric_limits<T>::max())); });
  }
  void share(const std::string& flag, double& value, double most, const std::string& what, const std::string& by_default = "");
  void seconds(const std::string& flag, double& value, const std::string& what);
  /// One of `names`, in the order of the enumeration; a wrong word names the nearest.
  template <class E>
  void word(const std::string& flag, E& value, std::vector<std::string_view> names, const std::string& what) {
    word_of(flag, std::move(names), static_cast<size_t>(value), what, [&value](size_t i) { value = static_cast<E>(i); });
  }
  void flag(const std::string& names, bool& value, const std::string& what);

  bool given(const std::string& flag) const;
  /// Throws UsageError if one of `others` was given beside `flag`, which was.
  void excludes(const std::string& flag, const std::vector<std::string>& others, const std::string& why) const;
  /// Returns false after --help was printed. Throws UsageError: an unknown flag names the nearest known one.
  bool parse(int argc, char** argv);

 private:
  void word_of(const std::string& flag, std::vector<std::string_view> names, size_t now, const std::string& what, std::function<void(size_t)> set);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smla
