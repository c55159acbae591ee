// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "kernels/cpu/number.h"
#include "kernels/door.h"
#include "kernels/registry.h"
#include "smla_catch.h"

namespace smla {
namespace {

// Two query heads, three slots, d_qk 16 = d_v, everything written out. Slot 1 is unselected and NaN.
TEST_CASE("cpu_naive on a case worked by hand") {
  constexpr int kD = 16;
  smla_problem p = {};
  p.abi_version = SMLA_ABI_VERSION;
  p.struct_size = sizeof p;
  p.b = p.s_q = 1;
  p.h_q = 2;
  p.s_kv = 3;
  p.topk = 4;
  p.d_qk = p.d_v = kD;
  p.page_size = 1;
  p.num_pages = p.max_pages = 3;
  p.num_slots = 3;
  p.q_stride_bytes[2] = 2 * kD;
  p.out_stride_bytes[2] = 2 * kD;
  p.page_stride_bytes = 2 * kD;
  p.sm_scale = 0.5f;
  p.threads = 1;

  std::vector<uint16_t> q(2 * kD), kv(3 * kD, 0x7fff), out(2 * kD, 0x7fff);
  q[0] = cpu::to_bf16(2);  // head 0 looks at channel 0, head 1 at nothing
  for (int d = 0; d < kD; ++d) kv[d] = cpu::to_bf16(d == 0 ? 3.f : 0.25f), kv[2 * kD + d] = cpu::to_bf16(d == 0 ? 1.f : 4.f);
  const std::vector<int32_t> indices = {2, -1, 0, 2};  // slot 2 twice
  std::vector<float> lse(2, NAN);
  smla_buffers io = {sizeof io, 0, q.data(), kv.data(), indices.data(), nullptr, nullptr, nullptr, nullptr, out.data(), lse.data()};

  const smla_kernel& naive = find_kernel("cpu_naive");
  REQUIRE_FALSE(declines(naive, p));
  std::vector<uint8_t> memory(static_cast<size_t>(workspace_bytes(naive, p)) + 256, 0xff);
  void* workspace = memory.data() + (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256) % 256;
  REQUIRE(launch(naive, p, io, workspace).empty());

  // head 0: x = 1, 3, 1 for slots 2, 0, 2. head 1: x = 0 for each.
  const double sum = 2 * std::exp(1.0) + std::exp(3.0);
  CHECK(lse[0] == Approx(std::log(sum)).epsilon(1e-6));
  CHECK(lse[1] == Approx(std::log(3.0)).epsilon(1e-6));
  const double rest = (2 * std::exp(1.0) * 4 + std::exp(3.0) * 0.25) / sum;
  for (int d = 0; d < kD; ++d) {
    CHECK(cpu::from_bf16(out[d]) == Approx(d == 0 ? (2 * std::exp(1.0) + 3 * std::exp(3.0)) / sum : rest).epsilon(1. / 256));
    CHECK(cpu::from_bf16(out[kD + d]) == Approx(d == 0 ? 5. / 3 : 8.25 / 3).epsilon(1. / 256));
  }

  const std::vector<float> sink = {static_cast<float>(std::log(sum)), INFINITY};  // halves head 0, silences head 1
  io.sink = sink.data();
  const float before = cpu::from_bf16(out[1]);
  REQUIRE(launch(naive, p, io, workspace).empty());
  CHECK(cpu::from_bf16(out[1]) == Approx(before / 2).epsilon(1. / 128));
  CHECK(cpu::from_bf16(out[kD]) == 0);
  CHECK(lse[0] == Approx(std::log(sum)).epsilon(1e-6));

  const std::vector<int32_t> none = {-1, 3, -7, 1 << 30};
  io.indices = none.data();
  REQUIRE(launch(naive, p, io, workspace).empty());
  for (const uint16_t x : out) CHECK(cpu::from_bf16(x) == 0);
  CHECK(lse[0] == -INFINITY);
}

}  // namespace
}  // namespace smla
