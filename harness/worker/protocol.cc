// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/protocol.h"

#include <fmt/format.h>

#include <charconv>
#include <type_traits>

#include "kernels/contract.h"

namespace smla {
namespace {

[[noreturn]] void bad(std::string_view key, std::string_view why) { throw ProtocolError(fmt::format("protocol: {}: {}", key, why)); }

// ---- values ------------------------------------------------------------------------------------------------------------------------------

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires {
  Names<E>::kKind;
};
template <class T>
concept Integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <Integer T>
std::string to_text(T value) {
  return fmt::format("{}", value);
}
template <NamedEnum E>
std::string to_text(E value) {
  return std::string(name_of(value));
}
std::string to_text(bool value) { return value ? "1" : "0"; }
std::string to_text(double value) { return fmt::format("{:a}", value); }
std::string to_text(float value) { return to_text(double{value}); }
std::string to_text(const Variant& value) { return to_word(value); }
std::string to_text(const std::string& value) {
  std::string text = "'";
  for (unsigned char c : value) {
    if (c == '\\' || c == '\'') (text += '\\') += static_cast<char>(c);
    else if (c == '\n') text += "\\n";
    else if (c < 0x20 || c == 0x7f) text += fmt::format("\\x{:02x}", c);
    else text += static_cast<char>(c);
  }
  return text + "'";
}
std::string to_text(const Case& value) { return to_text(to_line(value)); }
std::string to_text(const std::vector<KernelInfo>& kernels) {
  std::string lines;
  for (const KernelInfo& k : kernels) lines += k.name + "\t" + k.device + "\t" + k.description + "\n";
  return to_text(lines);
}
template <class T>
std::string join(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) (text += text.empty() ? "" : "|") += to_text(value);
  return text;
}
std::string to_text(const std::vector<double>& values) { return join(values); }
std::string to_text(const std::vector<uint64_t>& values) { return join(values); }
std::string to_text(const std::vector<int64_t>& tokens) {  // runs of consecutive numbers as first-last
  std::string text;
  for (size_t i = 0, end; i < tokens.size(); i = end) {
    for (end = i + 1; end < tokens.size() && tokens[end] == tokens[end - 1] + 1;) ++end;
    (text += text.empty() ? "" : "|") += to_text(tokens[i]);
    if (end - i > 1) (text += "-") += to_text(tokens[end - 1]);
  }
  return text;
}

template <Integer T>
void from_text(std::string_view key, std::string_view text, T& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) bad(key, "not an integer in range");
}
template <NamedEnum E>
void from_text(std::string_view key, std::string_view text, E& value) {
  for (size_t i = 0; i < std::size(Names<E>::kAll); ++i)
    if (Names<E>::kAll[i] == text) return void(value = static_cast<E>(i));
  bad(key, "not a known word");
}
void from_text(std::string_view key, std::string_view text, bool& value) {
  if (text != "0" && text != "1") bad(key, "not 0 or 1");
  value = text == "1";
}
void from_text(std::string_view key, std::string_view text, double& value) {
  bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.starts_with("0x")) text.remove_prefix(2);
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::hex);
  if (error != std::errc{} || end != text.data() + text.size()) bad(key, "not a hexadecimal float");
  if (negative) value = -value;
}
void from_text(std::string_view key, std::string_view text, float& value) {
  double wide;
  from_text(key, text, wide);
  value = static_cast<float>(wide);
}
void from_text(std::string_view key, std::string_view text, std::string& value) {
  if (text.size() < 2 || text.front() != '\'' || text.back() != '\'') bad(key, "not quoted");
  text = text.substr(1, text.size() - 2);
  value.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    if (++i == text.size()) bad(key, "ends in a backslash");
    if (text[i] == 'n') value += '\n';
    else if (text[i] == '\\' || text[i] == '\'') value += text[i];
    else if (unsigned code = 0; text[i] == 'x' && i + 2 < text.size() &&
                                std::from_chars(text.data() + i + 1, text.data() + i + 3, code, 16).ptr == text.data() + i + 3) {
      value += static_cast<char>(code);
      i += 2;
    } else bad(key, "unknown escape");
  }
}
void from_text(std::string_view key, std::string_view text, Case& value) {
  std::string line;
  from_text(key, text, line);
  try {
    value = parse_line(line);
  } catch (const UsageError& error) { bad(key, error.what()); }
}
void from_text(std::string_view key, std::string_view text, Variant& value) {
  try {
    value = parse_variant(text);
  } catch (const UsageError& error) { bad(key, error.what()); }
}
/// The pieces of `text` between separators; none for an empty text.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    size_t end = std::min(text.find(separator), text.size());
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}
void from_text(std::string_view key, std::string_view text, std::vector<KernelInfo>& kernels) {
  std::string lines;
  from_text(key, text, lines);
  kernels.clear();
  for (std::string_view line : split(lines, '\n')) {
    size_t tab = line.find('\t'), tab2 = line.find('\t', tab + 1);
    if (tab == line.npos || tab2 == line.npos) bad(key, "a kernel is name, device and description");
    kernels.push_back({std::string(line.substr(0, tab)), std::string(line.substr(tab2 + 1)), std::string(line.substr(tab + 1, tab2 - tab - 1))});
  }
}
template <class T>
void split_into(std::string_view key, std::string_view text, std::vector<T>& values) {
  values.clear();
  for (std::string_view piece : split(text, '|')) from_text(key, piece, values.emplace_back());
}
void from_text(std::string_view key, std::string_view text, std::vector<double>& values) { split_into(key, text, values); }
void from_text(std::string_view key, std::string_view text, std::vector<uint64_t>& values) { split_into(key, text, values); }
void from_text(std::string_view key, std::string_view text, std::vector<int64_t>& tokens) {
  constexpr int64_t kMaxTokens = int64_t{1} << 24;  // a line of few bytes must not become a list of many gigabytes
  tokens.clear();
  for (std::string_view piece : split(text, '|')) {
    size_t dash = std::min(piece.find('-'), piece.size());
    int64_t first, last;
    from_text(key, piece.substr(0, dash), first);
    last = first;
    if (dash < piece.size()) from_text(key, piece.substr(dash + 1), last);
    if (last < first || last - first >= kMaxTokens - static_cast<int64_t>(tokens.size())) bad(key, "not an ascending range, or too long");
    for (int64_t t = first; t <= last; ++t) tokens.push_back(t);
  }
}

// ---- lines -------------------------------------------------------------------------------------------------------------------------------

struct Writer {
  std::string line;
  template <class T>
  void operator()(std::string_view key, const T& value) {
    ((line += ' ') += key) += '=' + to_text(value);
  }
  template <class E>
  void operator()(std::string_view key, const E& value, E /*last*/) {
    (*this)(key, static_cast<int32_t>(value));
  }
};

struct Reader {
  std::string_view rest;
  std::string_view word() {
    size_t end = std::min(rest.find(' '), rest.size());
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return text;
  }
  /// The raw value of the next field, which must be `key`.
  std::string_view next(std::string_view key) {
    if (!rest.starts_with(key) || rest.size() <= key.size() || rest[key.size()] != '=') bad(key, "expected next, missing");
    std::string_view from = rest.substr(key.size() + 1);
    size_t end = 0;
    if (from.starts_with('\''))
      for (end = 1; end < from.size() && from[end] != '\''; ++end)
        if (from[end] == '\\') ++end;
    end = std::min(from.find(' ', std::min(end, from.size())), from.size());
    rest = from.substr(std::min(end + 1, from.size()));
    return from.substr(0, end);
  }
  template <class T>
  void operator()(std::string_view key, T& value) {
    from_text(key, next(key), value);
  }
  template <class E>
  void operator()(std::string_view key, E& value, E last) {
    int32_t number;
    (*this)(key, number);
    if (number < 0 || number > static_cast<int32_t>(last)) bad(key, "out of range");
    value = static_cast<E>(number);
  }
};

// One list of fields a struct, read by both directions.
template <class Io, class T>
concept IsA = std::is_same_v<std::remove_const_t<Io>, T>;

template <class Io, IsA<SupportsRequest> R>
void fields(Io& io, R& r) {
  io("case", r.c);
  io("kernel", r.kernel);
  io("cc", r.arch_cc);
}
template <class Io, IsA<RunRequest> R>
void fields(Io& io, R& r) {
  io("case", r.c);
  io("variant", r.variant);
  io("other", r.other);
  io("calls", r.calls, Calls::streams);
  io("kernel", r.kernel);
  io("fill", r.fill, OutputFill::huge);
  io("guard", r.guard, Guard::fault_after);
  io("launches", r.launches);
  io("alternate", r.alternate);
  io("threads", r.threads);
  io("rows", r.tokens);
}
template <class Io, IsA<Lane> R>
void fields(Io& io, R& r) {
  io("work", r.work, Lane::Work::empty);
  io("kernel", r.kernel);
  io("graph", r.graph);
  io("cold", r.cold);
}
/// A list of structs: how many, then the fields of each.
template <class Io, class List>
void each(Io& io, std::string_view key, List& list) {
  constexpr int64_t kMost = 4096;  // a line of few bytes must not become a list of many gigabytes
  int64_t count = std::ssize(list);
  io(key, count);
  if (count < 0 || count > kMost) bad(key, "out of range");
  if constexpr (!std::is_const_v<List>) list.resize(static_cast<size_t>(count));
  for (auto& element : list) fields(io, element);
}
template <class Io, IsA<TimeRequest> R>
void fields(Io& io, R& r) {
  io("case", r.c);
  each(io, "lanes", r.lanes);
  io("min_samples", r.min_samples);
  io("max_time_s", r.max_time_s);
  io("max_noise", r.max_noise);
  io("threads", r.threads);
}
template <class Io, IsA<Ready> R>
void fields(Io& io, R& r) {
  io("kernels", r.kernels);
}
template <class Io, IsA<Refused> R>
void fields(Io& io, R& r) {
  io("text", r.text);
}
template <class Io, IsA<Span> R>
void fields(Io& io, R& r) {
  io("did", r.activity, Activity::ask);
  io("from", r.begin_ns);
  io("to", r.end_ns);
}
template <class Io, IsA<Contract> R>
void fields(Io& io, R& r) {
  each_contract_field([&](const char* name, auto here, auto, auto... last) { io(name, r.*here, last...); });
}
template <class Io, IsA<RunReply> R>
void fields(Io& io, R& r) {
  io("status", r.status);
  io("detail", r.detail);
  fields(io, r.contract);
  io("guards_ok", r.guards_ok);
  io("inputs_ok", r.inputs_ok);
  io("written_ok", r.written_ok);
  io("guards_detail", r.guards_detail);
  io("misuse", r.misuse);
  io("out_hash", r.out_hash);
  io("lse_hash", r.lse_hash);
  io("splits_used", r.splits_used);
  io("workspace_bytes", r.workspace_bytes);
  io("prepare_ms", r.prepare_ms);
  io("first_launch_ms", r.first_launch_ms);
  io("kernel_ms", r.kernel_ms);
  each(io, "spans", r.spans);
}
template <class Io, IsA<LaneReply> R>
void fields(Io& io, R& r) {
  io("status", r.status);
  io("detail", r.detail);
  io("time_us", r.time_us);
  io("round", r.round);
  io("sm_clock_mhz", r.sm_clock_mhz);
  io("throttle", r.throttle);
  io("calls_per_sample", r.calls_per_sample);
  io("cold_ratio", r.cold_ratio);
  io("prepare_us", r.prepare_us);
  io("host_launch_us", r.host_launch_us);
  io("mem_clock_mhz", r.mem_clock_mhz);
  io("power_w_median", r.power_w_median);
  io("temperature_c_max", r.temperature_c_max);
  io("splits_used", r.splits_used);
  io("workspace_bytes", r.workspace_bytes);
  io("stop_reason", r.stop_reason);
  io("out_hash", r.out_hash);
  io("lse_hash", r.lse_hash);
}
template <class Io, IsA<TimeReply> R>
void fields(Io& io, R& r) {
  io("status", r.status);
  io("detail", r.detail);
  io("l2_bytes", r.l2_bytes);
  each(io, "lanes", r.lanes);
}

template <class T>
constexpr std::string_view kVerb = "";
template <>
constexpr std::string_view kVerb<SupportsRequest> = "supports";
template <>
constexpr std::string_view kVerb<RunRequest> = "run";
template <>
constexpr std::string_view kVerb<TimeRequest> = "time";
template <>
constexpr std::string_view kVerb<Ready> = "ready";
template <>
constexpr std::string_view kVerb<Refused> = "err";
template <>
constexpr std::string_view kVerb<RunReply> = "ok";
template <>
constexpr std::string_view kVerb<TimeReply> = "ok_time";

/// Sets `body` to the alternative whose verb it is, default-constructed.
template <class... T>
void choose(std::variant<T...>& body, std::string_view verb) {
  if (!((kVerb<T> == verb && (body.template emplace<T>(), true)) || ...)) bad("verb", "unknown");
}

void must_be_canonical(std::string_view line, const std::string& again) {
  if (line != again) throw ProtocolError("protocol: not in canonical form");
}

}  // namespace

std::string encode(uint64_t number, const Request& request) {
  Writer io;
  std::visit([&]<class R>(const R& r) { io.line = kVerb<R>, io("n", number), fields(io, r); }, request);
  return io.line;
}

std::string encode(const Reply& reply) {
  Writer io;
  std::visit([&]<class R>(const R& r) { io.line = kVerb<R>, io("n", reply.number), io("retire", reply.retire), fields(io, r); }, reply.body);
  return io.line;
}

Request decode_request(std::string_view line, uint64_t* number) {
  Reader io{line};
  Request request;
  choose(request, io.word());
  io("n", *number);
  std::visit([&](auto& r) { fields(io, r); }, request);
  must_be_canonical(line, encode(*number, request));
  return request;
}

Reply decode_reply(std::string_view line) {
  Reader io{line};
  Reply reply;
  choose(reply.body, io.word());
  io("n", reply.number);
  io("retire", reply.retire);
  std::visit([&](auto& r) { fields(io, r); }, reply.body);
  must_be_canonical(line, encode(reply));
  return reply;
}

}  // namespace smla
