// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/kernel_call.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <new>

#include "harness/worker/blackbox.h"
#include "harness/worker/process_state.h"
#include "kernels/door.h"
#include "kernels/problem.h"

namespace smla {
namespace {

/// Two inputs that are called in turn stand in memory together while that takes no more; else each is made again when its turn comes.
constexpr int64_t kTogether_bytes = int64_t{64} << 20;

/// Leaves at once in a child that the kernel forked and let return: only the worker itself goes on.
struct SameProcess {
  pid_t pid = getpid();
  ~SameProcess() {
    if (getpid() != pid) _exit(0);
  }
};

/// Calls the kernel. What it throws becomes a status.
template <class F>
auto through_door(const std::string& stage, F&& call) {
  set_stage(stage, Turn::kernel);
  const FloatEnvironment ours;
  SameProcess or_leave;
  try {
    return call();
  } catch (const KernelOutOfMemory& error) { throw Ended{Status::oom, fmt::format("{}: {}", stage, error.what())}; } catch (const std::bad_alloc&) {
    throw Ended{Status::oom, fmt::format("{} threw std::bad_alloc", stage)};
  } catch (const std::exception& error) { throw Ended{Status::crash, fmt::format("{} threw: {}", stage, error.what())}; } catch (...) {
    throw Ended{Status::crash, fmt::format("{} threw something that is no std::exception", stage)};
  }
}

/// "out[0][1][7] element 511", by the offset of its first byte.
std::string element_name(const char* tensor, const Rows& rows, int64_t offset, int element_bytes) {
  const int64_t i = offset / rows.stride_bytes[0], in_i = offset % rows.stride_bytes[0], j = in_i / rows.stride_bytes[1],
                in_j = in_i % rows.stride_bytes[1];
  if (rows.n[2] == 1 && rows.stride_bytes[2] == 0) return fmt::format("{}[{}][{}][{}]", tensor, i, j, in_j / element_bytes);
  return fmt::format("{}[{}][{}][{}][{}]", tensor, i, j, in_j / rows.stride_bytes[2], in_j % rows.stride_bytes[2] / element_bytes);
}

/// Rows of these tokens, `per_token` each, side by side. What stands together comes in one piece: each costs a GPU a round trip.
void download_rows(Device& device, const std::byte* data, const Rows& rows, const std::vector<int64_t>& tokens, int64_t per_token, std::byte* to) {
  int64_t begin = 0, end = 0;
  const auto fetch = [&] {
    if (begin < end) device.download(to, data + begin, end - begin);
    to += end - begin;
  };
  for (int64_t token : tokens)
    for (int64_t row = token * per_token; row < (token + 1) * per_token; ++row) {
      const int64_t at = rows.offset(row);
      if (at != end) fetch(), begin = at;
      end = at + rows.row_bytes;
    }
  fetch();
}

}  // namespace

Contract ask(const smla_kernel& kernel, const smla_problem& problem) {
  if (auto reason = through_door("supports", [&] { return declines(kernel, problem); })) throw Ended{Status::unsupported, *reason};
  return through_door("contract", [&] { return contract(kernel, problem); });
}

KernelCall::KernelCall(const smla_kernel& k, Device& d, int n, const Inputs& in, std::optional<DenseChange> dense)
    : kernel(k), device(d), threads(n), dense_(dense) {
  contract = ask(kernel, problem(in));
  lse_bytes_ = contract.lse_dtype == LseType::none ? 0 : contract.lse_dtype == LseType::bf16 ? 2 : 4;
  problem_ = problem(in);
  const smla_problem& p = problem_;
  out_rows_ = {{p.b, p.s_q, p.h_q}, {p.out_stride_bytes[0], p.out_stride_bytes[1], p.out_stride_bytes[2]}, int64_t{2} * p.d_v};
  lse_rows_ = {{p.b, p.s_q, 1}, {p.lse_stride_bytes[0], p.lse_stride_bytes[1], 0}, int64_t{lse_bytes_} * p.h_q};
}

smla_problem KernelCall::problem(const Inputs& in) const {
  smla_problem p = make_problem(in, threads, lse_bytes_ ? lse_bytes_ : 4);
  device.describe(p);
  if (dense_) {
    if (dense_->context) p.s_kv = std::min(p.s_kv, dense_->context);
    p.topk = p.s_kv;
    p.flags |= SMLA_FLAG_DENSE_SET;
  }
  return p;
}

bool KernelCall::supports(const Inputs& in) const {
  return !through_door("supports", [&] { return declines(kernel, problem(in)); });
}

void KernelCall::allocate(const std::vector<StagedInputs*>& inputs, bool take_turns) {
  const TensorBytes bytes = tensor_bytes(problem_);
  int64_t sum = 0, largest = 0, held = 0, workspace_need = 0;
  for (const StagedInputs* in : inputs) {
    const int64_t n = in->bytes_needed();
    sum += n;
    largest = std::max(largest, n);
    if (in->staged()) held += n;
  }
  const bool together = !take_turns || sum <= kTogether_bytes;
  if (!together)
    for (StagedInputs* in : inputs)
      if (in != inputs.front() && in->staged()) held -= in->bytes_needed(), in->unstage();
  const int64_t need = bytes.out + bytes.lse + (together ? sum : largest) - held;
  if (const int64_t have = need < kWorthAsking_bytes ? need : device.available_bytes(); need > have)
    throw Ended{Status::skipped, fmt::format("the case's tensors need {} bytes, {} are free", need, have)};
  for (const StagedInputs* in : inputs) {
    const smla_problem p = problem(in->in);
    const int64_t n = through_door("workspace_bytes", [&] { return smla::workspace_bytes(kernel, p); });
    if (n < 0) throw Ended{Status::crash, fmt::format("workspace_bytes returned {}", n)};
    workspace_need = std::max(workspace_need, n);
  }
  for (StagedInputs* in : inputs)
    if (together || in == inputs.front()) stage(*in);
  const Doing note(Activity::memory);
  try {
    out_ = device.allocate("out", bytes.out, Guard::canary);
    if (lse_bytes_) lse_ = device.allocate("lse", bytes.lse, Guard::canary);
  } catch (const OutOfMemory& error) { throw Ended{Status::skipped, fmt::format("out of memory: {}", error.what())}; }
  if (dense_ && dense_->context) {
    std::vector<int32_t> lens = inputs.front()->in.seq_lens;
    for (int32_t& n : lens) n = std::min(n, dense_->context);
    seq_lens_ = device.allocate("seq_lens", static_cast<int64_t>(lens.size()) * 4, Guard::canary);
    device.upload(seq_lens_.data, lens.data(), seq_lens_.bytes);
  }
  try {
    workspace_ = device.allocate("workspace", workspace_need, Guard::canary);
  } catch (const OutOfMemory& error) { throw Ended{Status::oom, error.what()}; }
}

void KernelCall::stage(StagedInputs& inputs) {
  set_stage("generating inputs");
  try {
    inputs.stage(device);
  } catch (const OutOfMemory& error) { throw Ended{Status::skipped, fmt::format("out of memory: {}", error.what())}; }
}

void KernelCall::dirty_outputs(OutputFill fill) {
  const Doing note(Activity::fill);
  device.fill(out_.data, out_.bytes, word_of(fill));
  if (lse_bytes_) device.fill(lse_.data, lse_.bytes, word_of(fill));
}

void KernelCall::dirty_workspace(int launch_index, OutputFill fill) {
  const Doing note(Activity::fill);
  constexpr uint16_t kOtherNan = 0x7fe6;
  const uint16_t word = fill == OutputFill::nan ? kOtherNan : word_of(fill == OutputFill::ones ? OutputFill::huge : OutputFill::ones);
  if (launch_index == 0) device.fill(workspace_.data, workspace_.bytes / 2 * 2, word);
  else device.fill_random(workspace_.data, workspace_.bytes, static_cast<uint64_t>(launch_index));
}

smla_buffers KernelCall::buffers(const StagedInputs& inputs) const {
  smla_buffers b = inputs.buffers();
  b.out = out_.data;
  b.lse = lse_.data;
  if (seq_lens_.data) b.seq_lens = reinterpret_cast<const int32_t*>(seq_lens_.data);
  return b;
}

void KernelCall::prepare(const StagedInputs& inputs, const std::string& stage) {
  const smla_problem p = problem(inputs.in);
  const smla_buffers b = buffers(inputs);
  settle(stage, through_door(stage, [&] { return smla::prepare(kernel, p, b, workspace(), device.stream()); }));
}
std::string KernelCall::enqueue(const StagedInputs& inputs, const std::string& stage, void* stream, const void* kv) {
  const smla_problem p = problem(inputs.in);
  smla_buffers b = buffers(inputs);
  if (kv) b.kv = kv;
  return through_door(stage, [&] { return smla::launch(kernel, p, b, workspace(), stream); });
}
void KernelCall::launch(const StagedInputs& inputs, const std::string& stage) { settle(stage, enqueue(inputs, stage, device.stream())); }
std::unique_ptr<Device::Recording> KernelCall::record(const StagedInputs& inputs, const std::string& stage, std::string& why) {
  std::string error, failed;
  auto recording = device.record([&] { error = enqueue(inputs, stage, device.stream()); }, failed);
  settle(stage);  // does the device still work?
  if (!error.empty()) recording = nullptr;
  if (!recording) why = fmt::format("{}: {}{}{}", stage, error, error.empty() || failed.empty() ? "" : ": ", failed);
  return recording;
}
std::string KernelCall::written_early(OutputFill fill) const {
  for (const Block* block : {&out_, &lse_})
    if (block->data && device.streams()->first_changed(block->data, block->bytes, word_of(fill)))
      return block->name + " was written before the stream reached the launch: the work is not ordered on the stream that was given";
  return {};
}
void KernelCall::settle(const std::string& stage, std::string error) {
  const std::string device_error = device.synchronize();  // after a refusal too: does the device still work?
  put_back_schedule();
  set_stage("after " + stage);
  if (error.empty()) error = device_error;
  if (!error.empty()) throw Ended{Status::crash, fmt::format("{}: {}", stage, error)};
}

KernelCall::Looked KernelCall::look(OutputFill fill) const {
  const auto out = device.look(out_.data, out_rows_, 2, word_of(fill));
  const auto lse = lse_bytes_ ? device.look(lse_.data, lse_rows_, lse_bytes_, word_of(fill)) : Device::SeenRows();
  Looked looked{"", out.hash, lse.hash};
  if (out.unwritten) looked.unwritten = element_name("out", out_rows_, *out.unwritten, 2) + " was not written";
  else if (lse.unwritten) looked.unwritten = element_name("lse", lse_rows_, *lse.unwritten, lse_bytes_) + " was not written";
  return looked;
}

std::optional<std::string> KernelCall::strays(OutputFill fill) const {
  const Doing note(Activity::look);
  std::vector<Device::Content> blocks;
  for (const Block* block : {&out_, &lse_, &workspace_})
    if (block->data) blocks.push_back({block, {}});
  const std::vector<Device::SeenBlock> seen = device.look(blocks);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = *blocks[i].block;
    if (seen[i].damaged) return outside(block, *seen[i].damaged);
    if (&block == &workspace_) continue;
    if (auto at = device.first_stray(block.data, block.bytes, &block == &out_ ? out_rows_ : lse_rows_, word_of(fill)))
      return fmt::format("{}: byte {}, in a gap between its rows, was written", block.name, *at);
  }
  return {};
}

void KernelCall::read_rows(const std::vector<int64_t>& tokens, uint16_t* out, float* lse) const {
  const Doing note(Activity::rows);
  download_rows(device, out_.data, out_rows_, tokens, problem_.h_q, reinterpret_cast<std::byte*>(out));
  if (!lse_bytes_) return;
  std::vector<std::byte> narrow(tokens.size() * static_cast<size_t>(lse_rows_.row_bytes));
  download_rows(device, lse_.data, lse_rows_, tokens, 1, narrow.data());
  for (size_t at = 0; at < narrow.size(); at += static_cast<size_t>(lse_bytes_)) {
    uint32_t bits = 0;  // bf16 is the upper half of an f32
    std::memcpy(reinterpret_cast<char*>(&bits) + (4 - lse_bytes_), &narrow[at], static_cast<size_t>(lse_bytes_));
    *lse++ = std::bit_cast<float>(bits);
  }
}

int32_t KernelCall::splits_used() const {
  return through_door("splits_used", [&] { return smla::splits_used(kernel, problem_); });
}

}  // namespace smla
