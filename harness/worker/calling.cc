// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/calling.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "harness/worker/blackbox.h"
#include "harness/worker/sampler.h"

namespace smla {
namespace {

using std::chrono::steady_clock;

/// How long nothing may happen behind a closed gate: work that waits for nothing is over in what the whole call took in the open, `call_ms`.
std::chrono::duration<double, std::milli> gate_time(double call_ms) {
  return std::chrono::duration<double, std::milli>(std::clamp(3 * call_ms, 3.0, 20.0));
}
/// How long the gate waits for a launch to return, in ms: far longer than one takes that only enqueues.
double gate_limit_ms(double call_ms) { return std::clamp(10 * call_ms, 30.0, 2000.0); }
/// A launch that had not returned by then is held against the kernel if it happens so often in a row: any process may be stopped for that long once.
constexpr int kWaits = 2;
constexpr const char* kWaited = "launch waited for the stream: it may only enqueue";

/// The gate, closed; opened at the end of the scope.
class Gate {
 public:
  Gate(Streams& streams, double call_ms) : streams_(streams) { streams_.close_gate(gate_limit_ms(call_ms)); }
  ~Gate() { streams_.open_gate(); }
  Gate(const Gate&) = delete;

 private:
  Streams& streams_;
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
  if (launch_ms_.empty()) return;  // it never came to a launch
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
  const KernelCall::Looked looked = call_.look(request_.fill);
  if (!looked.unwritten.empty() && reply_.written_ok) {
    reply_.written_ok = false;
    reply_.detail = looked.unwritten;
  }
  reply_.out_hash.push_back(looked.out_hash);
  reply_.lse_hash.push_back(looked.lse_hash);
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
  const double call_ms = launch_ms_.back();
  for (int i = 0; i < kWaits; ++i) {
    call_.dirty_outputs(request_.fill);
    std::string error, early;
    bool waited, kept_closed;
    {
      const Gate gate(streams, call_ms);
      error = call_.enqueue(first_, "launch behind a closed gate", call_.device.stream());
      waited = streams.gate_gave_up();
      if (!waited) {
        std::this_thread::sleep_for(gate_time(call_ms));
        early = call_.written_early(request_.fill);
      }
      kept_closed = !streams.gate_gave_up();
    }
    call_.settle("launch behind a gate", error);
    reply_.misuse = waited ? kWaited : kept_closed ? early : "";  // the last: we were stopped, not the kernel
    if (kept_closed) break;
  }
  look();
}

void Calling::graph() {
  if (!first_.same_layout(*other_)) throw Ended{Status::unsupported, "graph: not asked, the other inputs lie in memory in another way"};
  prepare_on_dirt(*other_, 0, "prepare");
  launch(*other_, "launch before the capture");
  const auto recording = call_.record(*other_, "capture", reply_.misuse);
  if (!recording) return;
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
  int waits = 0;
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
      {
        const Gate gate(streams, launch_ms_.front());
        for (int turn = 0; turn < 2 && error.empty(); ++turn) {
          error = call_.enqueue(first_, stage, lanes[i % 2]);
          if (error.empty()) error = beside.enqueue(*other_, stage, lanes[1 - i % 2]);
        }
        waits = streams.gate_gave_up() ? waits + 1 : 0;
      }
      call_.settle(stage, error);
    }));
    look();
    if (waits == kWaits) {
      reply_.misuse = kWaited;
      return;
    }
  }
}

}  // namespace smla
