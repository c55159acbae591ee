// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/protocol.h"

#include <cmath>
#include <limits>
#include <random>

#include "smla_catch.h"

using namespace smla;

namespace {

RunRequest a_run() {
  RunRequest r;
  r.c = parse_line("decode b=2 s_q=2 h_q=8 s_kv=256 topk=128 kv_format=fp8_656 seed=7");
  r.variant.poison = Poison::huge;
  r.other.half = 1;
  r.calls = Calls::graph;
  r.kernel = "it's a \\ \n\x01 name";
  r.fill = OutputFill::huge;
  r.guard = Guard::fault_after;
  r.launches = 3;
  r.alternate = true;
  r.threads = 2;
  r.tokens = {0, 1, 2, 3, 7, 9, 10};
  return r;
}
RunReply an_answer() {
  RunReply r;
  r.status = Status::crash;
  r.detail = "SIGSEGV; stderr: 'quoted', \xc3\xa9, \t and\nlines";
  r.contract.p = Rounding::e4m3;
  r.contract.p_scale = 448;
  r.contract.lse_base = LseBase::two;
  r.guards_ok = false;
  r.guards_detail = "out: byte 5";
  r.misuse = "lse";
  r.out_hash = {0, 1, std::numeric_limits<uint64_t>::max()};
  r.kernel_ms = 0.1;
  r.prepare_ms = std::numeric_limits<double>::infinity();
  r.spans = {{Activity::kernel, 5, 9}, {Activity::look, int64_t{1} << 60, -1}};
  r.workspace_bytes = int64_t{1} << 40;
  return r;
}
/// All that travels, so that a forgotten field shows: lines of both must agree and none may be left at its default above.
template <class T>
T over_the_wire(const T& body) {
  const std::string line = encode(Reply{9, true, body});
  CHECK(line.find('\n') == line.npos);
  Reply again = decode_reply(line);
  CHECK(again.number == 9);
  CHECK(again.retire);
  CHECK(encode(again) == line);
  return std::get<T>(again.body);
}

}  // namespace

TEST_CASE("a request survives the line") {
  const RunRequest sent = a_run();
  const std::string line = encode(41, sent);
  CHECK(line.find('\n') == line.npos);
  CHECK_THAT(line, ContainsSubstring("rows=0-3|7|9-10"));
  uint64_t number = 0;
  const auto got = std::get<RunRequest>(decode_request(line, &number));
  CHECK(number == 41);
  CHECK(got.c == sent.c);
  CHECK(got.variant == sent.variant);
  CHECK(got.other == sent.other);
  CHECK(got.calls == Calls::graph);
  CHECK(got.kernel == sent.kernel);
  CHECK(got.fill == sent.fill);
  CHECK(got.guard == sent.guard);
  CHECK(got.launches == 3);
  CHECK(got.alternate);
  CHECK(got.threads == 2);
  CHECK(got.tokens == sent.tokens);

  TimeRequest time;
  time.c = sent.c;
  time.lanes = {{Lane::Work::kernel, "k", true, false}, {Lane::Work::dense_topk, "d", false, true}};
  time.min_samples = 9;
  time.max_time_s = 0.1;
  time.max_noise = 1e-300;
  const auto again = std::get<TimeRequest>(decode_request(encode(1, time), &number));
  CHECK(again.lanes == time.lanes);
  CHECK(again.min_samples == 9);
  CHECK(again.max_time_s == 0.1);
  CHECK(again.max_noise == 1e-300);

  const auto supports = std::get<SupportsRequest>(decode_request(encode(2, SupportsRequest{sent.c, "k", 120}), &number));
  CHECK(supports.c == sent.c);
  CHECK(supports.arch_cc == 120);
}

TEST_CASE("an answer survives the line") {
  const RunReply sent = an_answer(), got = over_the_wire(sent);
  CHECK(got.status == sent.status);
  CHECK(got.detail == sent.detail);
  CHECK(got.contract == sent.contract);
  CHECK(got.guards_ok == sent.guards_ok);
  CHECK(got.guards_detail == sent.guards_detail);
  CHECK(got.out_hash == sent.out_hash);
  CHECK(got.lse_hash.empty());
  CHECK(got.kernel_ms == sent.kernel_ms);
  CHECK(std::isinf(got.prepare_ms));
  CHECK(got.spans == sent.spans);
  CHECK(got.workspace_bytes == sent.workspace_bytes);

  TimeReply time;
  time.lanes.resize(2);
  time.lanes[1].time_us = {1.5, 0.1, 1e9};
  time.lanes[1].round = {0, 1, 3};
  time.lanes[1].throttle = {0, 4, 0x20};
  time.lanes[1].stop_reason = "noise";
  const TimeReply timed = over_the_wire(time);
  REQUIRE(timed.lanes.size() == 2);
  CHECK(timed.lanes[0].time_us.empty());
  CHECK(timed.lanes[1].time_us == time.lanes[1].time_us);
  CHECK(timed.lanes[1].round == time.lanes[1].round);
  CHECK(timed.lanes[1].throttle == time.lanes[1].throttle);
  CHECK(timed.lanes[1].stop_reason == "noise");
  CHECK(over_the_wire(Refused{"no such kernel 'x'"}).text == "no such kernel 'x'");
  const Ready ready = over_the_wire(Ready{{{"a", "does | things = 'well'", "cpu"}, {"b", "", "cuda"}}});
  REQUIRE(ready.kernels.size() == 2);
  CHECK(ready.kernels[0].description == "does | things = 'well'");
  CHECK(ready.kernels[1].device == "cuda");
}

TEST_CASE("only the canonical line is a message") {
  const std::string line = encode(41, a_run());
  uint64_t number;
  REQUIRE_NOTHROW(decode_request(line, &number));
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = line;
    REQUIRE(text.find(from) != text.npos);
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& bad : {std::string(),
                                 std::string("run"),
                                 " " + line,
                                 line + " ",
                                 line + "\n",
                                 line + " extra=1",
                                 changed("run", "walk"),
                                 changed("run n=41", "run"),
                                 changed("n=41", "n=041"),
                                 changed("n=41", "n=+41"),
                                 changed("n=41", "n=-1"),
                                 changed("n=41", "n=99999999999999999999"),
                                 changed("launches=3", "launches=3 launches=3"),
                                 changed("launches=3 alternate=1", "alternate=1 launches=3"),
                                 changed("alternate=1", "alternate=2"),
                                 changed("alternate=1", "alternate=true"),
                                 changed("fill=2", "fill=3"),
                                 changed("calls=3", "calls=5"),
                                 changed("fill=2", "fill=-1"),
                                 changed("rows=0-3", "rows=3-0"),
                                 changed("rows=0-3", "rows=0-1|2-3"),
                                 changed("rows=0-3", "rows=0-"),
                                 changed("rows=0-3", "rows="),
                                 changed("rows=0-3", "rows=0-9223372036854775807"),
                                 changed("rows=0-3", "rows=-9223372036854775807-9223372036854775807"),
                                 changed("b=2", "b=x"),
                                 changed("b=2", "b=2 page_size=64"),
                                 changed("variant=", "variant=no_such_"),
                                 changed("\\x01", "\\x1"),
                                 changed("\\x01", "\\xzz"),
                                 changed("\\x01", "\\q"),
                                 changed("\\x01", "\x01"),
                                 changed("name'", "name")}) {
    INFO(bad);
    CHECK_THROWS_AS(decode_request(bad, &number), ProtocolError);
  }
  const std::string answer = encode(Reply{1, false, an_answer()});
  REQUIRE_NOTHROW(decode_reply(answer));
  for (auto [from, to] : {std::pair{"ok", "OK"},
                          {"status=crash", "status=crashed"},
                          {"p_scale=0x1.cp+8", "p_scale=448"},
                          {"p_scale=0x1.cp+8", "p_scale=0x1.c0p+8"},
                          {"p_scale=0x1.cp+8", "p_scale=0x1.cp+800"},
                          {"p_scale=0x1.cp+8", "p_scale=0x1.cp+8x"},
                          {"lse_base=1", "lse_base=2"},
                          {"out_hash=0|", "out_hash=0||"},
                          {"out_hash=0|", "out_hash=|"}}) {
    std::string text = answer;
    REQUIRE(text.find(from) != text.npos);
    text.replace(text.find(from), std::string(from).size(), to);
    INFO(text);
    CHECK_THROWS_AS(decode_reply(text), ProtocolError);
  }
}

TEST_CASE("garbage is an error, never more") {
  std::mt19937 random(1);
  const std::string lines[] = {encode(41, a_run()), encode(Reply{1, false, an_answer()})};
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = lines[i % 2];
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 12));
          break;
        case 3:
          text.resize(at);
          break;
      }
      if (text.empty()) break;
    }
    try {
      uint64_t number;
      const std::string again = i % 2 ? encode(decode_reply(text)) : encode(41, decode_request(text, &number));
      ++accepted;
      if (i % 2) CHECK(again == text);
    } catch (const ProtocolError&) {}
  }
  CHECK(accepted > 0);  // some changes fall into text and numbers
}
