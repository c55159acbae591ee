// SPDX-License-Identifier: Apache-2.0
#include "harness/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "cases/words.h"

namespace smla {
namespace {

/// NaN where the text is not a finite number from end to end.
double finite_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(value) ? value : std::nan("");
}

/// The program is called as it was started, and a default stands behind what a flag does.
struct Help : CLI::Formatter {
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, name, mode), "\n\n\n", "\n\n");
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = "\nusage: " + name;
    for (const CLI::Option* option : app->get_options([](const CLI::Option* o) { return o->get_positional(); })) text += " " + option->get_name(true);
    return text + " [flags]\n";
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 || option->get_positional() ? "" : " " + option->get_type_name();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string by_default = option->get_default_str();
    return option->get_description() + (by_default.empty() ? "" : fmt::format(" (default: {})", by_default));
  }
};

}  // namespace

int64_t parse_count(std::string_view flag, std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw UsageError(
        fmt::format("{} {}: want a whole number of at least {}{}", flag, text, least, value > most ? fmt::format(", {} at most", most) : ""));
  return value;
}

double parse_seconds(std::string_view flag, std::string_view text) {
  const double value = finite_number(text);
  if (!(value > 0)) throw UsageError(fmt::format("{} {}: want seconds above 0, without a unit: 1.5", flag, text));
  return value;
}

double parse_times(std::string_view flag, std::string_view text) {
  const double value = finite_number(text);
  if (!(value >= 0)) throw UsageError(fmt::format("{} {}: want a factor, 0 at least", flag, text));
  return value;
}

std::string share_text(double share) { return fmt::format("{:.6g}%", 100 * share); }

double parse_share(std::string_view flag, std::string_view text, double most) {
  const bool percent = text.ends_with('%');
  const double number = finite_number(percent ? text.substr(0, text.size() - 1) : text), share = percent ? number / 100 : number;
  if (!percent && number >= 1)
    throw UsageError(fmt::format("{} {}: write {}% or {}: a number without % is a fraction, below 1", flag, text, text, share_text(number)));
  if (!(share >= 0 && share <= most)) throw UsageError(fmt::format("{} {}: want a share from 0% to {}: 3%, or 0.03", flag, text, share_text(most)));
  return share;
}

struct Flags::Impl {
  CLI::App app;
  std::string program, verb;
  std::vector<std::string> words;  // that must be given
};

Flags::Flags(std::string what, std::string program, std::string verb) : impl_(new Impl{CLI::App(what), std::move(program), std::move(verb), {}}) {
  CLI::App& app = impl_->app;
  app.name(fmt::format("{} {}", impl_->program, impl_->verb));
  const auto help = std::make_shared<Help>();
  help->column_width(36);
  help->label("Positionals", "Words");
  app.formatter(help);
  app.get_help_ptr()->description("this text");
}
Flags::~Flags() = default;

void Flags::group(const std::string& name) { impl_->app.option_defaults()->group(name); }

void Flags::positional(const std::string& name, std::string& value, const std::string& what) {
  impl_->app.add_option(name, value, what);
  impl_->words.push_back(name);
}

void Flags::parsed(const std::string& flag, const std::string& type, const std::string& what, const std::string& by_default,
                   std::function<void(const std::string&)> parse) {
  impl_->app.add_option_function<std::string>(flag, parse, what)->type_name(type)->default_str(by_default);
}

void Flags::text(const std::string& flag, std::string& value, const std::string& type, const std::string& what, const std::string& by_default) {
  impl_->app.add_option(flag, value, what)->type_name(type)->default_str(by_default.empty() ? value : by_default);
}

void Flags::texts(const std::string& flag, std::vector<std::string>& values, const std::string& type, const std::string& what,
                  const std::string& by_default) {
  impl_->app.add_option(flag, values, what + "; repeatable")->type_name(type)->default_str(by_default)->allow_extra_args(false);
}

void Flags::share(const std::string& flag, double& value, double most, const std::string& what, const std::string& by_default) {
  parsed(flag, "SHARE", fmt::format("{}: 3% or 0.03, from 0% to {}", what, share_text(most)), by_default.empty() ? share_text(value) : by_default,
         [flag, &value, most](const std::string& text) { value = parse_share(flag, text, most); });
}

void Flags::seconds(const std::string& flag, double& value, const std::string& what) {
  parsed(flag, "SECONDS", what, fmt::format("{:g}", value), [flag, &value](const std::string& text) { value = parse_seconds(flag, text); });
}

void Flags::word_of(const std::string& flag, std::vector<std::string_view> names, size_t now, const std::string& what,
                    std::function<void(size_t)> set) {
  parsed(flag, fmt::format("{}", fmt::join(names, "|")), what, std::string(names[now]), [flag, names, set](const std::string& word) {
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) throw_unknown_value(flag, word, names.data(), names.size());
    set(static_cast<size_t>(found - names.begin()));
  });
}

void Flags::flag(const std::string& names, bool& value, const std::string& what) { impl_->app.add_flag(names, value, what); }

bool Flags::given(const std::string& flag) const { return impl_->app.count(flag) > 0; }

void Flags::excludes(const std::string& flag, const std::vector<std::string>& others, const std::string& why) const {
  for (const std::string& other : others)
    if (given(flag) && given(other)) throw UsageError(fmt::format("{}: {} {}: {} has no effect", impl_->verb, flag, why, other));
}

bool Flags::parse(int argc, char** argv) {
  CLI::App& app = impl_->app;
  const std::string& verb = impl_->verb;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ExtrasError&) {
    const std::string word = app.remaining().empty() ? "" : app.remaining().front();
    if (word.rfind("-", 0) != 0) throw UsageError(fmt::format("{}: unexpected word '{}' ({} --help)", verb, word, app.get_name()));
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string flag = word.substr(0, word.find('=')), near = nearest(flag, views.data(), views.size());
    throw UsageError(fmt::format("{}: unknown flag '{}'{} ({} --help)", verb, flag, near.empty() ? "" : fmt::format("; did you mean '{}'?", near),
                                 app.get_name()));
  } catch (const CLI::ParseError& e) { throw UsageError(fmt::format("{}: {}", verb, e.what())); }
  for (const std::string& word : impl_->words)
    if (!given(word)) throw UsageError(fmt::format("{}: {} is missing ({} --help)", verb, word, app.get_name()));

  // An empty word is a variable of the caller's that was not set: "" as a folder would be the root or the folder at hand. A control character would
  // be obeyed by every terminal that the word is printed on.
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 127; };
  for (const CLI::Option* option : app.get_options())
    for (const std::string& word : option->results()) {
      if (word.empty() && option->get_items_expected_max() > 0) throw UsageError(fmt::format("{}: {} is given, but empty", verb, option->get_name()));
      if (const auto found = std::find_if(word.begin(), word.end(), is_control); found != word.end())
        throw UsageError(fmt::format("{}: {}: character {} is a control character (code {})", verb, option->get_name(), found - word.begin() + 1,
                                     static_cast<int>(*found)));
    }
  return true;
}

}  // namespace smla
