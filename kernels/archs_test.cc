// SPDX-License-Identifier: Apache-2.0
#include "kernels/archs.h"

#include "cases/words.h"
#include "kernels/door.h"
#include "kernels/problem.h"
#include "kernels/registry.h"
#include "smla_catch.h"

using namespace smla;

TEST_CASE("an architecture is found by its name, and says what a block may have") {
  for (const Arch& arch : archs()) {
    CHECK(find_arch(arch.name).cc == arch.cc);
    CHECK(arch.name == "sm_" + std::to_string(arch.cc));
    smla_problem p = {};
    describe_arch(arch.cc, p);
    CHECK(p.device_cc == arch.cc);
    CHECK(p.sm_count > 0);
    CHECK(p.smem_optin_bytes >= 101376);
  }
  CHECK(find_arch("sm_120").smem_optin_bytes == 101376);
  CHECK_THROWS_WITH(find_arch("sm_12"), ContainsSubstring("sm_12") && ContainsSubstring("did you mean"));
}

#ifdef SMLA_HAVE_CUDA
bool has(std::string_view name) {
  for (const KernelEntry& entry : kernels())
    if (name == entry.kernel->name) return true;
  return false;
}

TEST_CASE("on an architecture without warpgroup MMA the kernel made of it declines and says why; sparse_mma serves there") {
  const Inputs in = make_inputs(parse_line("decode b=4 s_q=1 h_q=16 s_kv=3000 topk=2048"));
  for (const Arch& arch : archs()) {
    INFO(arch.name);
    smla_problem p = make_problem(in, 1);
    describe_arch(arch.cc, p);
    CHECK(!declines(find_kernel("sparse_mma"), p));
    CHECK(workspace_bytes(find_kernel("sparse_mma"), p) >= 0);
    if (arch.cc != 90 && has("sparse_wgmma"))
      CHECK_THAT(declines(find_kernel("sparse_wgmma"), p).value_or("taken"), ContainsSubstring("wgmma") && ContainsSubstring(std::string(arch.name)));
  }
}
#endif
