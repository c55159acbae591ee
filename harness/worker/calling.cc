// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/calling.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "harness/worker/blackbox.h"
#include "harness/worker/sampler.h"

namespace smla {
namespace {

using std::chrono::steady_clock;

/// How long nothing may happen behind a closed gate: work that waits for nothing is done in far less.
constexpr std::chrono::milliseconds kGateTime{20};

/// The gate, closed; opened at the end of the scope at the latest.
class Gate {
 public:
  explicit Gate(Streams& streams) : streams_(streams) { streams_.close_gate(); }
  ~Gate() {
    if (closed_) streams_.open_gate();
  }
  Gate(const Gate&) = delete;
  bool open() {
    closed_ = false;
    return streams_.open_gate();
  }

 private:
  Streams& streams_;
  bool closed_ = true;
};

}  // namespace

void look_at_inputs(StagedInputs& inputs, RunReply& reply) {
  if (!inputs.staged() || !reply.inputs_ok) return;
  set_stage("looking at the inputs");
  const Doing note(Activity::look);
  if (const auto text = inputs.changed()) {
    reply.inputs_ok = false;
    reply.guards_detail += (reply.guards_detail.empty() ? "" : "; ") + *text;
  }
}

void Calling::run() {
  switch (request_.calls) {
    case Calls::plain:
      plain();
      break;
    case Calls::back_to_back:
      back_to_back();
      break;
    case Calls::gate:
      gate();
      break;
    case Calls::graph:
      graph();
      break;
    case Calls::streams:
      streams();
      break;
  }
  reply_.first_launch_ms = launch_ms_.front();
  reply_.kernel_ms = spread(launch_ms_).median;
}

void Calling::prepare(StagedInputs& inputs, const std::string& stage) {
  if (!inputs.staged()) {
    StagedInputs& others = &inputs == &first_ ? *other_ : first_;
    look_at_inputs(others, reply_);
    others.unstage();
    call_.stage(inputs);
  }
  const double ms = timed([&] { call_.prepare(inputs, stage); });
  if (reply_.out_hash.empty()) reply_.prepare_ms = ms;
}

void Calling::prepare_on_dirt(StagedInputs& inputs, int turn, const std::string& stage) {
  call_.dirty_workspace(turn, request_.fill);
  prepare(inputs, stage);
}

template <class F>
double Calling::timed(F&& work) {
  const Doing note(Activity::kernel);
  const auto begin = steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}

void Calling::launch(const StagedInputs& inputs, const std::string& stage) {
  call_.dirty_outputs(request_.fill);
  const double ms = timed([&] { call_.launch(inputs, stage); });
  if (&inputs == &first_) launch_ms_.push_back(ms);
}

void Calling::look() {
  set_stage("looking at the outputs");
  const Doing note(Activity::look);
  if (std::string text = call_.unwritten(request_.fill); !text.empty() && reply_.written_ok) {
    reply_.written_ok = false;
    reply_.detail = text;
  }
  reply_.out_hash.push_back(call_.out_hash());
  reply_.lse_hash.push_back(call_.lse_hash());
}

void Calling::plain() {
  for (int i = 0; i < request_.launches; ++i) {
    const std::string which = fmt::format("{} of {}", i + 1, request_.launches);
    if (request_.alternate && i != 1) {
      prepare_on_dirt(*other_, i, "prepare " + which + " (the other input before it)");
      launch(*other_, "launch " + which + " (the other input before it)");
    }
    if (request_.alternate ? i != 1 : i % 2 == 0)
      prepare_on_dirt(first_, i, "prepare " + which);  // else: what the launch before left in the workspace
    launch(first_, "launch " + which);
    look();
  }
}

void Calling::back_to_back() {
  prepare_on_dirt(first_, 0, "prepare");
  for (const char* which : {"launch", "launch again, on the workspace that the first left"}) {
    launch(first_, which);
    look();
  }
  prepare(*other_, "prepare (the other input)");
  launch(*other_, "launch (the other input)");
  prepare(first_, "prepare, on the workspace that the other input left");
  launch(first_, "launch, on the workspace that the other input left");
  look();
}

void Calling::gate() {
  Streams& streams = *call_.device.streams();
  prepare_on_dirt(first_, 0, "prepare");
  launch(first_, "launch before the gate closes");  // loads what is loaded at a first launch, which may have to wait for the device
  look();
  call_.dirty_outputs(request_.fill);
  std::string error;
  {
    Gate gate(streams);
    error = call_.enqueue(first_, "launch behind a closed gate", call_.device.stream());
    std::this_thread::sleep_for(kGateTime);
    reply_.early = call_.written_early(request_.fill);
    if (!gate.open()) reply_.early = "launch waited for the stream: it may only enqueue";
  }
  call_.settle("launch behind a gate", error);
  look();
}

void Calling::graph() {
  if (!first_.same_layout(*other_)) throw Ended{Status::unsupported, "graph: not asked, the other inputs lie in memory in another way"};
  prepare_on_dirt(*other_, 0, "prepare");
  launch(*other_, "launch before the capture");
  const auto recording = call_.record(*other_, "capture");
  other_->become(first_);
  for (int i = 1; i <= 2; ++i) {
    const std::string stage = fmt::format("replay {} of the graph, other inputs in its memory", i);
    prepare_on_dirt(*other_, i, "prepare before " + stage);
    call_.dirty_outputs(request_.fill);
    launch_ms_.push_back(timed([&] {
      set_stage(stage, Turn::kernel);
      call_.device.play(*recording);
      call_.settle(stage);
    }));
    look();
  }
}

void Calling::streams() {
  Streams& streams = *call_.device.streams();
  KernelCall beside(call_.kernel, call_.device, call_.threads, other_->in);
  beside.allocate({other_});
  void* const lanes[] = {call_.device.stream(), streams.second()};
  for (int i = 0; i < request_.launches; ++i) {
    const std::string stage = fmt::format("launch {} of {} beside another stream's", i + 1, request_.launches);
    prepare_on_dirt(first_, i, "prepare");
    beside.dirty_workspace(i, request_.fill);
    beside.prepare(*other_, "prepare (the other input)");
    if (i == 0) launch(first_, "launch before the gate closes");
    call_.dirty_outputs(request_.fill);
    beside.dirty_outputs(request_.fill);
    std::string error;
    launch_ms_.push_back(timed([&] {
      Gate gate(streams);
      for (int turn = 0; turn < 2 && error.empty(); ++turn) {
        error = call_.enqueue(first_, stage, lanes[i % 2]);
        if (error.empty()) error = beside.enqueue(*other_, stage, lanes[1 - i % 2]);
      }
      gate.open();
      call_.settle(stage, error);
    }));
    look();
  }
}

}  // namespace smla
