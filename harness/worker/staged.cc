// SPDX-License-Identifier: Apache-2.0
#include "harness/worker/staged.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/problem.h"

namespace smla {
namespace {

enum Which : size_t { kKv, kQ, kIndices, kTopkLength, kBlockTable, kSeqLens, kSink, kCount };
constexpr const char* kNames[kCount] = {"kv", "q", "indices", "topk_length", "block_table", "seq_lens", "sink"};

constexpr uint16_t kGapWord = 0xffff;  // NaN in every 16-bit type

/// Bytes of the n-th tensor; kv without its guard rows.
int64_t bytes_of(const Inputs& in, const TensorBytes& bytes, size_t which) {
  switch (which) {
    case kKv:
      return bytes.kv;
    case kQ:
      return bytes.q;
    case kIndices:
      return bytes.indices;
    case kTopkLength:
      return in.topk_length.empty() ? 0 : bytes.topk_length;
    case kBlockTable:
      return bytes.block_table;
    case kSeqLens:
      return bytes.seq_lens;
    case kSink:
      return in.sink.empty() ? 0 : bytes.sink;
  }
  return 0;
}

Inputs generated(const Case& c, const Variant& variant) {
  const Doing note(Activity::generate);
  return make_inputs(c, variant);
}

bool is_far(const Inputs& in) { return in.c.pattern == Pattern::far; }

/// `far`: the selected rows and both neighbours of each, as ranges of the pool's bytes.
std::vector<Range> far_ranges(const Inputs& in) {
  std::vector<Range> ranges;
  for (int64_t slot : in.selected)
    for (int64_t near : {slot - 1, slot, slot + 1}) {
      if (near < 0 || near >= in.num_slots) continue;
      const int64_t begin = near / in.c.page_size * in.page_stride_bytes + near % in.c.page_size * in.row_bytes;
      ranges.push_back({begin, begin + in.row_bytes});
    }
  return ranges;
}

/// Every slot of every page in use, sorted.
std::vector<int32_t> slots_in_use(const Inputs& in) {
  std::vector<int32_t> slots;
  for (const PageUse& use : in.page_uses)
    for (int32_t i = 0; i < in.c.page_size; ++i) slots.push_back(use.page * in.c.page_size + i);
  return slots;
}

}  // namespace

StagedInputs::StagedInputs(const Case& c, const Variant& variant, Guard guard, bool whole_context)
    : in(generated(c, variant)), guard_(guard), whole_context_(whole_context) {}

int64_t StagedInputs::pool_lead_bytes() const { return guard_ == Guard::canary && !is_far(in) ? (in.row_bytes + 255) / 256 * 256 : 0; }

int64_t StagedInputs::bytes_needed() const {
  const TensorBytes bytes = tensor_bytes(make_problem(in, 1));
  int64_t sum = 2 * pool_lead_bytes();
  for (size_t which = 0; which < kCount; ++which)
    sum += which == kKv && is_far(in) ? std::ssize(in.selected) * 3 * in.row_bytes : bytes_of(in, bytes, which);
  return sum;
}

StagedInputs::Tensor StagedInputs::allocate(Device& device, size_t which) const {
  Tensor tensor;
  const int64_t bytes = bytes_of(in, tensor_bytes(make_problem(in, 1)), which);
  if (which == kKv && is_far(in)) {
    tensor.block = device.reserve(kNames[which], bytes);
    tensor.content = device.back(tensor.block, far_ranges(in));
  } else if (bytes > 0) {
    const int64_t with_lead = bytes + (which == kKv ? 2 * pool_lead_bytes() : 0);
    tensor.block = device.allocate(kNames[which], with_lead, guard_);
    tensor.content = {{0, with_lead}};
  }
  return tensor;
}

void StagedInputs::write(Tensor& tensor, size_t which) const {
  if (!tensor.block.data) return;
  const Doing note(Activity::generate);
  Device& device = *tensor.block.device;
  const smla_problem p = make_problem(in, 1);
  const int64_t bytes = tensor.block.bytes;
  std::byte* to = tensor.block.data;
  switch (which) {
    case kKv: {
      if (!whole_context_ || is_far(in)) return device.write_pool(in, tensor.block, pool_lead_bytes(), tensor.content);
      Inputs whole = in;
      whole.selected = slots_in_use(in);
      return device.write_pool(whole, tensor.block, pool_lead_bytes(), tensor.content);
    }
    case kQ:
      device.fill(to, bytes, kGapWord);
      return device.write_q(in, to, {{p.b, p.s_q, p.h_q}, {p.q_stride_bytes[0], p.q_stride_bytes[1], p.q_stride_bytes[2]}, int64_t{2} * p.d_qk});
    case kIndices: {  // gaps name slot 0, which looks valid: whoever reads them answers wrongly
      std::vector<std::byte> staging(static_cast<size_t>(bytes));
      for (int64_t t = 0; t < in.tokens(); ++t)
        std::memcpy(&staging[static_cast<size_t>(t / p.s_q * p.indices_stride_bytes[0] + t % p.s_q * p.indices_stride_bytes[1])],
                    &in.indices[static_cast<size_t>(t * p.topk)], sizeof(int32_t) * static_cast<size_t>(p.topk));
      return device.upload(to, staging.data(), bytes);
    }
    case kTopkLength:
      return device.upload(to, in.topk_length.data(), bytes);
    case kBlockTable:
      return device.upload(to, in.block_table.data(), bytes);
    case kSeqLens:
      return device.upload(to, in.seq_lens.data(), bytes);
    case kSink:
      return device.upload(to, in.sink.data(), bytes);
  }
}

void StagedInputs::stage(Device& device) {
  if (staged()) return;
  const Doing note(Activity::memory);
  std::vector<Tensor> tensors;
  for (size_t which = 0; which < kCount; ++which) {
    Tensor& tensor = tensors.emplace_back(allocate(device, which));
    write(tensor, which);
    if (!tensor.block.data) continue;
    tensor.watched = device.watch(tensor.block);
    if (tensor.watched) continue;
    const Doing looking(Activity::look);
    tensor.hash = device.hash(tensor.block.data, tensor.content);
  }
  tensors_ = std::move(tensors);
}

smla_buffers StagedInputs::buffers() const {
  auto at = [&](Which which) { return tensors_[which].block.data; };
  smla_buffers buffers = {};
  buffers.struct_size = sizeof buffers;
  buffers.kv = at(kKv) + pool_lead_bytes();
  buffers.q = at(kQ);
  buffers.indices = reinterpret_cast<const int32_t*>(at(kIndices));
  buffers.topk_length = reinterpret_cast<const int32_t*>(at(kTopkLength));
  buffers.block_table = reinterpret_cast<const int32_t*>(at(kBlockTable));
  buffers.seq_lens = reinterpret_cast<const int32_t*>(at(kSeqLens));
  buffers.sink = reinterpret_cast<const float*>(at(kSink));
  return buffers;
}

bool StagedInputs::evict() const {
  if (is_far(in)) return false;
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [](const Tensor& tensor) { return !tensor.block.data || tensor.block.device->evict(tensor.block.data, tensor.block.bytes); });
}

bool StagedInputs::same_layout(const StagedInputs& other) const {
  const smla_problem a = make_problem(in, 1), b = make_problem(other.in, 1);
  return std::memcmp(&a, &b, sizeof a) == 0 && !is_far(in) && in.topk_length.empty() == other.in.topk_length.empty() &&
         in.sink.empty() == other.in.sink.empty() && guard_ == other.guard_;
}

void StagedInputs::become(const StagedInputs& other) {
  for (size_t which = 0; which < kCount; ++which) {
    Tensor& to = tensors_[which];
    const Tensor& from = other.tensors_[which];
    if (!to.block.data) continue;
    to.block.device->copy(to.block.data, from.block.data, to.block.bytes);
    to.hash = from.hash;
  }
  in = other.in;
}

std::optional<std::string> StagedInputs::changed() {
  std::vector<Device::Content> contents;  // where the device does not watch
  for (const Tensor& tensor : tensors_)
    if (tensor.block.data && !tensor.watched) contents.push_back({&tensor.block, tensor.content});
  const std::vector<Device::SeenBlock> looked = contents.empty() ? std::vector<Device::SeenBlock>() : pool().device->look(contents);
  auto seen = looked.begin();
  for (size_t which = 0; which < kCount; ++which) {
    Tensor& tensor = tensors_[which];
    if (!tensor.block.data) continue;
    Device& device = *tensor.block.device;
    const int64_t lead = which == kKv ? pool_lead_bytes() : 0;
    const auto written = [&](int64_t at) {
      return fmt::format("{}: byte {} of {} was written", kNames[which], at - lead, tensor.block.bytes - 2 * lead);
    };
    if (tensor.watched) {
      if (auto at = device.first_written(tensor.block)) return *at < 0 || *at >= tensor.block.bytes ? outside(tensor.block, *at) : written(*at);
      continue;
    }
    const Device::SeenBlock& now = *seen++;
    if (now.damaged) return outside(tensor.block, *now.damaged);
    if (now.hash == tensor.hash) continue;
    Tensor again = allocate(device, which);
    write(again, which);
    for (Range r : tensor.content)
      if (auto at = device.first_difference(tensor.block.data + r.begin, again.block.data + r.begin, r.end - r.begin)) return written(r.begin + *at);
    return fmt::format("{}: was changed, and changed back while it was looked at", kNames[which]);
  }
  return {};
}

std::string outside(const Block& block, int64_t at) {
  if (at < 0) return fmt::format("{}: the byte {} before its first one was written", block.name, -at);
  return fmt::format("{}: byte {} was written, it has {}", block.name, at, block.bytes);
}

}  // namespace smla
