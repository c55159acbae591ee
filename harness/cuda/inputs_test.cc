// SPDX-License-Identifier: Apache-2.0
// What the GPU generates is what the host generates, byte by byte; what it is asked about memory, it answers as the host does.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "harness/cuda/cuda_device.h"
#include "harness/worker/host_device.h"
#include "harness/worker/staged.h"
#include "kernels/problem.h"
#include "smla_catch.h"

using namespace smla;

namespace {

Device& gpu() {
  std::string why;
  Device* device = open_cuda_device(0, why);
  if (!device) throw std::runtime_error(why);
  return *device;
}

std::vector<std::byte> taken(Device& device, const void* from, int64_t bytes) {
  std::vector<std::byte> all(static_cast<size_t>(bytes));
  if (bytes) device.download(all.data(), static_cast<const std::byte*>(from), bytes);
  return all;
}

/// The first tensor that differs; "" = none. The pool with the rows before and behind it, where memory is there.
std::string first_difference(const Case& c, const Variant& variant, Guard guard) {
  StagedInputs here(c, variant, guard), there(c, variant, guard);
  here.stage(host_device());
  there.stage(gpu());
  const smla_problem p = make_problem(here.in, 1);
  const TensorBytes bytes = tensor_bytes(p);
  const smla_buffers a = here.buffers(), b = there.buffers();
  const auto same = [&](const void* x, const void* y, int64_t n) { return taken(host_device(), x, n) == taken(gpu(), y, n); };
  if (c.pattern == Pattern::far) {
    for (int64_t slot : here.in.selected) {
      const int64_t at = slot / c.page_size * p.page_stride_bytes + slot % c.page_size * here.in.row_bytes;
      if (!same(static_cast<const std::byte*>(a.kv) + at, static_cast<const std::byte*>(b.kv) + at, here.in.row_bytes)) return "kv";
    }
  } else {
    const int64_t around = guard == Guard::canary ? here.in.row_bytes : 0;
    if (!same(static_cast<const std::byte*>(a.kv) - around, static_cast<const std::byte*>(b.kv) - around, bytes.kv + 2 * around)) return "kv";
  }
  if (!same(a.q, b.q, bytes.q)) return "q";
  if (!same(a.indices, b.indices, bytes.indices)) return "indices";
  if (a.topk_length && !same(a.topk_length, b.topk_length, bytes.topk_length)) return "topk_length";
  if (!same(a.block_table, b.block_table, bytes.block_table)) return "block_table";
  if (!same(a.seq_lens, b.seq_lens, bytes.seq_lens)) return "seq_lens";
  if (a.sink && !same(a.sink, b.sink, bytes.sink)) return "sink";
  if (there.changed()) return "changed";
  return "";
}

}  // namespace

TEST_CASE("inputs of every family, format and pattern have the host's bytes") {
  int asked = 0;
  for (std::string_view values : Names<Values>::kAll)
    for (const char* format :
         {"", " q_dtype=fp16 kv_format=fp16", " kv_format=fp8_656", " kv_format=fp8_656 scales=pow2", " q_dtype=fp16 kv_format=fp8_656 scales=pow2"})
      for (const char* shape : {"decode b=3 s_q=2 h_q=5 s_kv=400 topk=200 page_size=53 sink=mixed topk_length=1 pattern=page_straddling",
                                "decode b=2 s_q=1 h_q=8 s_kv=700 topk=513 pattern=sorted page_stride_rows=67",
                                "prefill b=1 s_q=9 h_q=3 s_kv=130 topk=192 pattern=dense"}) {
        Case c;
        try {
          c = parse_line(std::string(shape) + format + " values=" + std::string(values));
          make_inputs(c);
        } catch (const UsageError&) { continue; }  // the family has no such case
        for (Poison poison : {Poison::nan, Poison::huge, Poison::random, Poison::numbers}) {
          Variant variant;
          variant.poison = poison;
          INFO(to_line(c) << " " << to_word(variant));
          CHECK(first_difference(c, variant, Guard::canary) == "");
          ++asked;
        }
      }
  for (std::string_view pattern : Names<Pattern>::kAll)
    for (const char* variant : {"base", "strided", "remapped", "permuted+inserted", "second"}) {
      try {
        const Case c = parse_line("decode b=4 s_q=2 h_q=4 s_kv=300 topk=320 topk_length=1 pattern=" + std::string(pattern));
        const Variant v = parse_variant(variant);
        INFO(to_line(c) << " " << variant);
        CHECK(first_difference(c, v, Guard::canary) == "");
        if (c.pattern != Pattern::far) CHECK(first_difference(c, v, Guard::fault_before) == "");
        if (c.pattern != Pattern::far) CHECK(first_difference(c, v, Guard::fault_after) == "");
        ++asked;
      } catch (const UsageError&) {}
    }
  CHECK(asked > 200);
}

TEST_CASE("memory of the GPU: what was touched is found") {
  Device& device = gpu();
  const Guard guard = GENERATE(Guard::canary, Guard::fault_before, Guard::fault_after);
  Block block = device.allocate("x", 1000, guard);
  CHECK(!device.damaged(block));
  const int64_t at = guard == Guard::fault_before ? 1001 : -1;
  const std::byte kept = taken(device, block.data + at, 1)[0], other = kept ^ std::byte{4};
  device.upload(block.data + at, &other, 1);
  CHECK(device.damaged(block) == at);
  device.upload(block.data + at, &kept, 1);
  CHECK(!device.damaged(block));

  const Rows rows{{2, 2, 1}, {400, 120, 0}, 64};
  device.fill(block.data, 1000, 0x7fd5);
  CHECK(device.first_unwritten(block.data, rows, 2, 0x7fd5) == 0);
  CHECK(!device.first_stray(block.data, 1000, rows, 0x7fd5));
  const uint64_t before = device.hash(block.data, rows);
  const uint16_t word = 1;
  device.upload(block.data + 464, reinterpret_cast<const std::byte*>(&word), 2);  // behind row 2
  CHECK(device.hash(block.data, rows) == before);
  CHECK(device.first_stray(block.data, 1000, rows, 0x7fd5) == 464);
  device.upload(block.data + 462, reinterpret_cast<const std::byte*>(&word), 2);  // in it
  CHECK(device.hash(block.data, rows) != before);
  CHECK(device.streams()->first_changed(block.data, 1000, 0x7fd5) == 462);
}
