// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_call.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "kernels/door.h"
#include "kernels/problem.h"

namespace smla {
namespace {

constexpr uint8_t kPoison = 0xff;  // NaN in every format; -1 in tables

/// True if a byte of [begin, end) outside of the rows at base + r * stride[0] + j * stride[1] + h * stride[2] is not poison.
bool strays(const uint8_t* begin, const uint8_t* end, const uint8_t* base, const smla_problem& p, const int64_t (&stride)[3], int heads,
            int64_t row_bytes) {
  const auto is_poison = [](uint8_t byte) { return byte == kPoison; };
  for (int64_t r = 0; r < p.b; ++r)
    for (int64_t j = 0; j < p.s_q; ++j)
      for (int64_t h = 0; h < heads; ++h) {
        const uint8_t* row = base + r * stride[0] + j * stride[1] + h * stride[2];
        if (!std::all_of(begin, row, is_poison)) return true;
        begin = row + row_bytes;
      }
  return !std::all_of(begin, end, is_poison);
}

}  // namespace

bool HostResult::operator==(const HostResult& other) const {
  return out == other.out && lse.size() == other.lse.size() && std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
}

void HostCall::Buffer::allocate(int64_t size, uint8_t fill) {
  bytes.assign(static_cast<size_t>(size + 2 * kMarginBytes), fill);
  const uintptr_t base = reinterpret_cast<uintptr_t>(bytes.data()) + kMarginBytes - 256;
  data = bytes.data() + kMarginBytes - 256 + (256 - base % 256) % 256;
}

void HostCall::Unmap::operator()(uint8_t* base) const { munmap(base, bytes); }

HostCall::HostCall(const Case& c, const Variant& variant, int threads) : in_(make_inputs(c, variant)), problem_(make_problem(in_, threads)) {
  const TensorBytes size = tensor_bytes(problem_);
  q_.allocate(size.q, kPoison);
  if (c.pattern == Pattern::far) {
    const auto bytes = static_cast<size_t>(size.kv + 2 * kMarginBytes);
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("no address space for a far pool");
    far_pool_ = {static_cast<uint8_t*>(base), Unmap{bytes}};
    kv_.data = far_pool_.get() + kMarginBytes;
  } else {
    kv_.allocate(size.kv, kPoison);
  }
  indices_.allocate(size.indices, kPoison);
  topk_length_.allocate(size.topk_length, kPoison);
  block_table_.allocate(size.block_table, kPoison);
  seq_lens_.allocate(size.seq_lens, kPoison);
  sink_.allocate(size.sink, kPoison);

  const smla_problem& p = problem_;
  for (int64_t t = 0; t < in_.tokens(); ++t) {
    const int64_t r = t / p.s_q, j = t % p.s_q;
    for (int h = 0; h < p.h_q; ++h)
      q_row(in_, t, h, reinterpret_cast<uint16_t*>(q_.data + r * p.q_stride_bytes[0] + j * p.q_stride_bytes[1] + h * p.q_stride_bytes[2]));
    std::memcpy(indices_.data + r * p.indices_stride_bytes[0] + j * p.indices_stride_bytes[1], in_.indices.data() + t * p.topk, 4 * size_t(p.topk));
  }
  fill_pool();
  const auto copy = [](Buffer& buffer, const auto& from) {
    if (!from.empty()) std::memcpy(buffer.data, from.data(), from.size() * sizeof from[0]);
  };
  copy(topk_length_, in_.topk_length);
  copy(block_table_, in_.block_table);
  copy(seq_lens_, in_.seq_lens);
  copy(sink_, in_.sink);
  for (Buffer* buffer : {&q_, &kv_, &indices_, &topk_length_, &block_table_, &seq_lens_, &sink_}) buffer->before = buffer->bytes;

  const auto i32 = [](const Buffer& buffer) { return reinterpret_cast<const int32_t*>(buffer.data); };
  buffers_ = {sizeof buffers_,
              0,
              q_.data,
              kv_.data,
              i32(indices_),
              in_.topk_length.empty() ? nullptr : i32(topk_length_),
              i32(block_table_),
              i32(seq_lens_),
              in_.sink.empty() ? nullptr : reinterpret_cast<const float*>(sink_.data),
              nullptr,
              nullptr};
}

void HostCall::fill_pool() {
  const auto row = [&](int64_t slot) { return kv_.data + slot / in_.c.page_size * in_.page_stride_bytes + slot % in_.c.page_size * in_.row_bytes; };
  if (!far_pool_) {
    for (int64_t slot = 0; slot < in_.num_slots; ++slot) poison_row(in_, slot, row(slot));
    const int64_t rows_bytes = in_.c.page_size * in_.row_bytes;
    for (int64_t page = 0; page < in_.num_pages; ++page)
      poison_bytes(in_.variant.poison, tail_salt(in_, page), kv_.data + page * in_.page_stride_bytes + rows_bytes,
                   in_.page_stride_bytes - rows_bytes);
    for (int64_t i = 0; i < 64; ++i) {  // a slot just outside is poison of the format too
      poison_row(in_, -1 - i, kv_.data - (i + 1) * in_.row_bytes);
      poison_row(in_, in_.num_slots + i, kv_.data + in_.num_pages * in_.page_stride_bytes + i * in_.row_bytes);
    }
  }
  for (const int32_t slot : in_.selected) kv_row(in_, slot, row(slot));
}

std::string HostCall::declines(const smla_kernel& kernel) const { return smla::declines(kernel, problem_).value_or(""); }

HostResult HostCall::run(const smla_kernel& kernel) {
  smla_problem& p = problem_;
  if (const std::string reason = declines(kernel); !reason.empty()) throw std::runtime_error(std::string(kernel.name) + " declines: " + reason);
  const Contract contract = smla::contract(kernel, p);
  const int lse_bytes = lse_element_bytes_ = contract.lse_dtype == LseType::bf16 ? 2 : 4;
  const smla_problem as_declared = make_problem(in_, p.threads, lse_bytes);
  std::copy_n(as_declared.lse_stride_bytes, 2, p.lse_stride_bytes);
  const TensorBytes size = tensor_bytes(p);
  out_.allocate(size.out, kPoison);
  lse_.allocate(size.lse, kPoison);
  workspace_.allocate(workspace_bytes(kernel, p), kPoison);
  buffers_.out = out_.data;
  buffers_.lse = lse_.data;
  if (std::string error = prepare(kernel, p, buffers_, workspace_.data); !error.empty()) throw std::runtime_error(error);
  if (std::string error = launch(kernel, p, buffers_, workspace_.data); !error.empty()) throw std::runtime_error(error);

  HostResult result;
  for (int64_t r = 0; r < p.b; ++r)
    for (int64_t j = 0; j < p.s_q; ++j) {
      for (int h = 0; h < p.h_q; ++h) {
        const auto* row =
            reinterpret_cast<const uint16_t*>(out_.data + r * p.out_stride_bytes[0] + j * p.out_stride_bytes[1] + h * p.out_stride_bytes[2]);
        result.out.insert(result.out.end(), row, row + p.d_v);
      }
      const uint8_t* lse = lse_.data + r * p.lse_stride_bytes[0] + j * p.lse_stride_bytes[1];
      for (int h = 0; h < p.h_q && contract.lse_dtype != LseType::none; ++h)
        result.lse.push_back(lse_bytes == 4 ? reinterpret_cast<const float*>(lse)[h]
                                            : std::bit_cast<float>(uint32_t{reinterpret_cast<const uint16_t*>(lse)[h]} << 16));
    }
  return result;
}

bool HostCall::touched_other_memory() const {
  for (const Buffer* buffer : {&q_, &kv_, &indices_, &topk_length_, &block_table_, &seq_lens_, &sink_})
    if (buffer->bytes != buffer->before) return true;
  const smla_problem& p = problem_;
  const auto ends = [](const Buffer& buffer) { return std::pair{buffer.bytes.data(), buffer.bytes.data() + buffer.bytes.size()}; };
  const auto [out, out_end] = ends(out_);
  const auto [lse, lse_end] = ends(lse_);
  const auto [workspace, workspace_end] = ends(workspace_);
  const int64_t lse_bytes = int64_t{p.h_q} * lse_element_bytes_, workspace_bytes = workspace_end - workspace - 2 * kMarginBytes;
  const smla_problem one = {.b = 1, .s_q = 1};
  return strays(out, out_end, out_.data, p, p.out_stride_bytes, p.h_q, 2 * int64_t{p.d_v}) ||
         strays(lse, lse_end, lse_.data, p, {p.lse_stride_bytes[0], p.lse_stride_bytes[1], 0}, 1, lse_bytes) ||
         strays(workspace, workspace_end, workspace_.data, one, {0, 0, 0}, 1, workspace_bytes);
}

}  // namespace smla
