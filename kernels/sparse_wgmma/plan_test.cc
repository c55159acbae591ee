// SPDX-License-Identifier: Apache-2.0
// What the door promises, for GPUs that are not here: pure functions of the problem.
#include <algorithm>

#include "kernels/common/combine.h"
#include "kernels/registry.h"
#include "kernels/sparse_wgmma/kernel.h"
#include "smla_catch.h"

namespace smla {
namespace {

smla_problem problem(int format, int b, int h_q) {
  smla_problem p{};
  p.abi_version = SMLA_ABI_VERSION;
  p.struct_size = sizeof p;
  p.b = b, p.s_q = 1, p.h_q = h_q, p.s_kv = 32768, p.topk = 2048, p.d_qk = 576, p.d_v = 512;
  p.page_size = 64, p.num_pages = 1024, p.num_slots = 65536;
  p.kv_format = format;
  p.q_dtype = p.rope_dtype = format == SMLA_KV_FP16 ? SMLA_FP16 : SMLA_BF16;
  p.page_stride_bytes = 64 * (format == SMLA_KV_FP8_656 ? 656 : 1152);
  p.sm_scale = 1.f / 24;
  p.device_cc = 90;
  p.sm_count = 132;
  p.smem_optin_bytes = 232448;
  return p;
}
std::string reason(const smla_kernel& kernel, const smla_problem& p) {
  char text[200] = "";
  return kernel.supports(&kernel, &p, text, sizeof text) ? "supported" : text;
}
int splits(const smla_kernel& kernel, const smla_problem& p) { return kernel.splits_used(&kernel, &p); }

TEST_CASE("splits: the measured best of a Hopper GPU with 132 SMs") {
  const smla_kernel& kernel = find_kernel("sparse_wgmma");
  CHECK(splits(kernel, problem(SMLA_KV_BF16, 1, 128)) >= 16);
  CHECK(splits(kernel, problem(SMLA_KV_BF16, 8, 128)) == 8);
  CHECK(splits(kernel, problem(SMLA_KV_BF16, 32, 128)) == 2);
  CHECK(splits(kernel, problem(SMLA_KV_BF16, 128, 128)) == 1);
  CHECK(splits(kernel, problem(SMLA_KV_BF16, 8, 64)) == 8);
  CHECK(splits(kernel, problem(SMLA_KV_BF16, 32, 64)) == 4);
  CHECK(splits(kernel, problem(SMLA_KV_BF16, 128, 64)) == 1);
}

TEST_CASE("tokens that fill whole waves are not split, those of a short last wave are") {
  for (const char* name : {"sparse_wgmma", "dense_wgmma"})
    for (const int h_q : {16, 64, 128}) {
      const smla_kernel& kernel = find_kernel(name);
      const int workers = h_q > 64 ? 66 : 132, pairs = h_q / 2;
      smla_problem prefill = problem(SMLA_KV_BF16, 1, h_q);
      prefill.s_q = 31 * workers;
      CHECK(splits(kernel, prefill) == 1);
      CHECK(kernel.workspace_bytes(&kernel, &prefill) == 0);
      prefill.s_q += 4;
      CHECK(splits(kernel, prefill) > 1);
      CHECK(kernel.workspace_bytes(&kernel, &prefill) == cuda::partial_bytes(4, pairs, splits(kernel, prefill)));
    }
}

TEST_CASE("num_splits is honoured up to one split a tile, and the workspace follows it") {
  const smla_kernel& kernel = find_kernel("sparse_wgmma");
  for (const int asked : {1, 2, 7, 33, 512})
    for (const int h_q : {1, 17, 64, 65, 128}) {
      smla_problem p = problem(SMLA_KV_BF16, 3, h_q);
      p.num_splits = asked;
      const int pairs = (h_q + 15) / 16 * 8, used = std::min(asked, 2048 / 64);
      CHECK(splits(kernel, p) == used);
      CHECK(kernel.workspace_bytes(&kernel, &p) == cuda::partial_bytes(3, pairs, used));
      smla_contract contract{};
      kernel.contract(&kernel, &p, &contract);
      CHECK(contract.batch_invariant == 1);
    }
}

TEST_CASE("splits never outnumber tiles") {
  for (const char* name : {"sparse_wgmma", "dense_wgmma"})
    for (const int h_q : {16, 64, 128}) {
      smla_problem tiny = problem(SMLA_KV_BF16, 1, h_q);
      tiny.topk = tiny.s_kv = 65;
      CHECK(splits(find_kernel(name), tiny) <= 2);
      tiny.num_splits = 32;
      CHECK(splits(find_kernel(name), tiny) == 2);
      tiny.num_splits = 0;
      tiny.topk = tiny.s_kv = 0;
      CHECK(splits(find_kernel(name), tiny) == 1);
    }
}

TEST_CASE("reasons name what is refused") {
  const smla_kernel &sparse = find_kernel("sparse_wgmma"), &dense = find_kernel("dense_wgmma");
  smla_problem p = problem(SMLA_KV_BF16, 1, 128);
  CHECK(reason(sparse, p) == "supported");
  CHECK(reason(dense, p) == "dense: attends every position, the case selects some");
  p.flags = SMLA_FLAG_DENSE_SET;
  CHECK(reason(dense, p) == "supported");
  p.device_cc = 120;
  CHECK(reason(sparse, p) == "needs sm_90 (wgmma); this is sm_120");
  p.device_cc = 80;
  CHECK(reason(sparse, p) == "needs sm_90 (wgmma); this is sm_80");
  p.device_cc = 0;
  CHECK(reason(sparse, p) == "needs a CUDA device");
  p = problem(SMLA_KV_FP8_656, 1, 128);
  CHECK(reason(sparse, p) == "supported");
  p.q_dtype = p.rope_dtype = SMLA_FP16;
  CHECK(reason(sparse, p) == "fp8_656 is converted to bf16 rows: q and RoPE must be bf16 (fp16 has no room for arbitrary scales)");
  p = problem(SMLA_KV_FP8_656, 1, 128);
  p.flags = SMLA_FLAG_DENSE_SET;
  CHECK(reason(dense, p) == "kv_format fp8_656 is read by sparse_wgmma only");
  p = problem(SMLA_KV_BF16, 1, 128);
  p.sm_scale = 0;
  CHECK(reason(sparse, p) == "sm_scale = 0: must be positive");
  p = problem(SMLA_KV_BF16, 1, 128);
  p.page_stride_bytes += 16;
  CHECK(reason(sparse, p) == "supported");
  p.num_pages = 1 << 30;
  CHECK(reason(sparse, p) == "1073741824 pages of 73744 bytes: rows are numbered with 32 bits in units of 16 bytes");
}

}  // namespace
}  // namespace smla
