// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/engine.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "harness/cuda/cuda_device.h"
#include "harness/worker/blackbox.h"
#include "harness/worker/calling.h"
#include "harness/worker/host_device.h"
#include "harness/worker/kernel_call.h"
#include "harness/worker/timing.h"
#include "kernels/archs.h"
#include "kernels/problem.h"

namespace smla {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
/// What a CPU kernel may have beside its workspace: stacks and buffers of its own threads. A leak ends here, long before the machine is in trouble.
constexpr int64_t allowance_bytes(int threads) { return 1024 * kMiB + threads * 16 * kMiB; }
constexpr int64_t kLeakBytes = 256 * kMiB;  // a process that grew by more is replaced

int resolved(int threads) { return threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

bool has_children() {
  siginfo_t info;
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

}  // namespace

Engine::Engine(std::vector<const smla_kernel*> kernels, int gpu) : kernels_(std::move(kernels)), gpu_ordinal_(gpu) {}
Engine::~Engine() = default;

std::vector<KernelInfo> Engine::list() const {
  std::vector<KernelInfo> infos;
  for (const smla_kernel* k : kernels_)
    infos.push_back({k->name, k->description ? k->description : "", k->device == SMLA_DEVICE_CPU ? "cpu" : "cuda"});
  return infos;
}

const smla_kernel& Engine::find(const std::string& name) const {
  std::vector<std::string_view> names;
  for (const smla_kernel* kernel : kernels_) {
    if (name == kernel->name) return *kernel;
    names.push_back(kernel->name);
  }
  throw_unknown_value("kernel", name, names.data(), names.size());
}

Device& Engine::device_of(const smla_kernel& kernel) {
  if (kernel.device == SMLA_DEVICE_CPU) return host_device();
  if (gpu_) return *gpu_;
  if (gpu_ordinal_ < 0) throw Ended{Status::skipped, "a CUDA kernel, and no GPU was given"};
  set_stage("opening the GPU");
  std::string why;
  gpu_ = open_cuda_device(gpu_ordinal_, why);
  if (!gpu_) throw Ended{Status::skipped, why};
  return *gpu_;
}

std::vector<StagedInputs*> Engine::inputs(const std::vector<Key>& keys) {
  set_stage("making inputs");
  std::erase_if(kept_, [&](const auto& kept) { return std::find(keys.begin(), keys.end(), kept.first) == keys.end(); });
  std::vector<StagedInputs*> found;
  for (const Key& key : keys) {
    auto it = std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept.first == key; });
    if (it == kept_.end()) it = kept_.insert(it, {key, std::make_unique<StagedInputs>(key.c, key.variant, key.guard, key.whole_context)});
    found.push_back(it->second.get());
  }
  return found;
}

template <class Reply>
void Engine::attempt(Reply& reply, const std::function<void()>& body) {
  const auto spoil = [&](const std::string& why) {
    reply.detail = reply.status == Status::crash ? why + "; " + reply.detail : why;
    reply.status = Status::crash;
    spoilt_ = true;
  };
  try {
    body();
  } catch (const Ended& ended) {
    reply.status = ended.status;
    reply.detail = ended.detail;
    if (ended.status == Status::crash || ended.status == Status::oom) kept_.clear();  // nobody looked at what it did to its inputs
  } catch (const DeviceError& error) { spoil(error.what()); } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) { spoil(fmt::format("the harness could not go on after the kernel: {}", error.what())); }
  if (gpu_ && gpu_->dead()) spoilt_ = true;
  if (has_children()) spoil("forked and left a child process behind");
  if (const std::string changes = process_.put_back(); !changes.empty()) spoil("changed the process that it runs in: " + changes);
}

void Engine::bounded(const Device& device, int threads, const std::function<void()>& body) {
  const int64_t before = data_bytes_now();
  if (&device == &host_device()) {
    DataLimit limit(allowance_bytes(threads));
    body();
  } else {
    body();
  }
  // What a first call on a GPU loads (modules, a Python kernel's compiler) is no leak.
  const bool may_load = &device != &host_device() && !std::exchange(loaded_, true);
  if (!may_load && data_bytes_now() - before > kLeakBytes) spoilt_ = true;
}

RunReply Engine::supports(const SupportsRequest& request) {
  RunReply reply;
  const smla_kernel& kernel = find(request.kernel);
  smla_problem problem = make_problem(inputs({{request.c, {}, Guard::canary, kernel.device}})[0]->in, resolved(0));
  attempt(reply, [&] {
    if (request.arch_cc && kernel.device != SMLA_DEVICE_CPU) describe_arch(request.arch_cc, problem);
    else device_of(kernel).describe(problem);
    reply.contract = ask(kernel, problem);
  });
  return reply;
}

RunReply Engine::run(const RunRequest& request, std::byte* judged) {
  RunReply reply;
  const smla_kernel& kernel = find(request.kernel);
  if (request.launches < 1) throw UsageError(fmt::format("launches must be at least 1, not {}", request.launches));
  std::vector<Key> keys = {{request.c, request.variant, request.guard, kernel.device}};
  if (request.alternate || (request.calls != Calls::plain && request.calls != Calls::gate))
    keys.push_back({request.c, request.other, request.guard, kernel.device});
  std::vector<StagedInputs*> in = inputs(keys);
  for (int64_t token : request.tokens)
    if (token < 0 || token >= in[0]->in.tokens()) throw UsageError(fmt::format("judged token {} is not in [0, {})", token, in[0]->in.tokens()));
  attempt(reply, [&] {
    KernelCall call(kernel, device_of(kernel), resolved(request.threads), in[0]->in);
    reply.contract = call.contract;
    if (request.alternate && !call.supports(in[1]->in)) {  // then divided as the first input is
      keys[1].variant.num_splits = -1;
      in = inputs(keys);
    }
    if (request.calls > Calls::back_to_back && !call.device.streams()) throw Ended{Status::unsupported, "not applicable: the device has no streams"};
    if (request.calls == Calls::back_to_back) KernelCall(kernel, call.device, call.threads, in[1]->in);  // asked, too
    call.allocate(in, request.calls <= Calls::back_to_back);
    reply.workspace_bytes = call.workspace_bytes();
    bounded(call.device, call.threads, [&] {
      Calling(call, request, *in[0], in.size() > 1 ? in[1] : nullptr, reply).run();
      reply.splits_used = call.splits_used();
    });
    set_stage("looking at guards and inputs");
    if (auto text = call.strays(request.fill)) {
      reply.guards_ok = false;
      reply.guards_detail = *text;
    }
    for (StagedInputs* inputs : in) look_at_inputs(*inputs, reply);
    if (!reply.inputs_ok) kept_.clear();               // else the next kernel would be blamed
    if (request.calls == Calls::graph) kept_.clear();  // the other inputs are no longer those of their key
    set_stage("returning the judged rows");
    const int64_t out_count = static_cast<int64_t>(request.tokens.size()) * request.c.h_q * request.c.d_v;
    call.read_rows(request.tokens, reinterpret_cast<uint16_t*>(judged),
                   reinterpret_cast<float*>(judged + judged_lse_offset(out_count) - kRowsOffset));
  });
  return reply;
}

TimeReply Engine::time(const TimeRequest& request) {
  TimeReply reply;
  if (request.lanes.empty()) throw UsageError("nothing to time");
  const smla_kernel& first = find(request.lanes.front().kernel);
  for (const Lane& lane : request.lanes)
    if (find(lane.kernel).device != first.device) throw UsageError(fmt::format("'{}' and '{}' run on different devices", lane.kernel, first.name));
  StagedInputs& in = *inputs({{request.c, {.poison = Poison::random}, Guard::canary, first.device, true}})[0];
  attempt(reply, [&] {
    Device& device = device_of(first);
    const int threads = resolved(request.threads);
    set_stage("generating inputs");
    try {
      in.stage(device);
    } catch (const OutOfMemory& error) { throw Ended{Status::skipped, fmt::format("out of memory: {}", error.what())}; }
    LaneTimer timer(
        request, device, threads, in, [&](const std::string& name) -> const smla_kernel& { return find(name); }, reply);
    bounded(device, threads, [&] { timer.run(); });
    set_stage("looking at inputs");
    if (auto text = in.changed()) throw Ended{Status::crash, "timed launches touched what is not theirs: " + *text};
  });
  return reply;
}

}  // namespace smla
