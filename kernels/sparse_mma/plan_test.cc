// SPDX-License-Identifier: Apache-2.0
// What the plan promises, for GPUs that are not here: pure functions of the problem.
#include <cstring>
#include <set>

#include "kernels/common/combine.h"
#include "kernels/registry.h"
#include "kernels/sparse_mma/kernel.h"
#include "kernels/sparse_mma/layout.h"
#include "smla_catch.h"

namespace smla {
namespace {

smla_problem problem(int cc, int format, int b, int h_q) {
  smla_problem p{};
  p.abi_version = SMLA_ABI_VERSION;
  p.struct_size = sizeof p;
  p.b = b, p.s_q = 1, p.h_q = h_q, p.s_kv = 32768, p.topk = 2048, p.d_qk = 576, p.d_v = 512;
  p.page_size = 64, p.num_pages = 1024, p.num_slots = 65536;
  p.kv_format = format;
  p.q_dtype = p.rope_dtype = format == SMLA_KV_FP16 ? SMLA_FP16 : SMLA_BF16;
  p.page_stride_bytes = 64 * (format == SMLA_KV_FP8_656 ? 656 : 1152);
  p.device_cc = cc;
  p.sm_count = cc == 120 ? 188 : cc == 90 ? 132 : 108;
  p.smem_optin_bytes = cc == 120 || cc == 89 ? 101376 : cc == 80 ? 166912 : 232448;
  return p;
}

TEST_CASE("one wave of resident blocks, a power of two of splits, all heads covered") {
  for (const int cc : {80, 89, 90, 100, 120})
    for (const int format : {SMLA_KV_BF16, SMLA_KV_FP16, SMLA_KV_FP8_656})
      for (const int b : {1, 2, 7, 32, 128, 4096})
        for (const int h_q : {1, 8, 9, 16, 17, 64, 100, 128}) {
          const smla_problem p = problem(cc, format, b, h_q);
          const cuda::MmaPlan plan = cuda::plan_mma(p, p.topk);
          CAPTURE(cc, format, b, h_q, plan.instance->name, plan.num_splits);
          CHECK(plan.instance->format == format);
          CHECK(plan.instance->shared_bytes <= 101376);
          CHECK(plan.head_blocks * plan.instance->heads >= h_q);
          CHECK((plan.head_blocks - 1) * plan.instance->heads < h_q);
          CHECK((plan.num_splits & (plan.num_splits - 1)) == 0);
          const int64_t blocks = int64_t{b} * plan.head_blocks * plan.num_splits, resident = p.smem_optin_bytes / plan.instance->shared_bytes;
          CHECK((plan.num_splits == 1 || blocks <= p.sm_count * (resident + 1)));
          CHECK((plan.stages >= 2 && plan.stages <= plan.instance->stages));
          CHECK(plan.num_splits * plan.head_blocks * 16 <= p.topk + 16 * plan.head_blocks);
        }
}

TEST_CASE("the H200's measured choices") {
  using cuda::MergeBy;
  for (const int format : {SMLA_KV_BF16, SMLA_KV_FP8_656}) {
    auto is = [&](int b, int h_q, int splits, MergeBy merge) {
      const cuda::MmaPlan plan = cuda::plan_mma(problem(90, format, b, h_q), 2048);
      CAPTURE(format, b, h_q, plan.instance->name, plan.num_splits);
      CHECK((plan.num_splits == splits && plan.merge == merge));
    };
    is(1, 8, 64, MergeBy::kernel);  // 32 entries a block
    is(8, 8, 16, MergeBy::kernel);  // one block an SM
    const bool fp8 = format == SMLA_KV_FP8_656;
    is(32, 8, fp8 ? 4 : 8, MergeBy::kernel);
    is(64, 8, fp8 ? 2 : 4, fp8 ? MergeBy::cluster : MergeBy::kernel);
    is(128, 8, 2, MergeBy::cluster);
    is(1, 16, 64, MergeBy::kernel);  // two blocks of 8 heads, 128 blocks in all
    is(4, 16, 16, MergeBy::kernel);  // the same
    is(8, 16, 16, MergeBy::kernel);
    is(11, 16, fp8 ? 16 : 8, MergeBy::kernel);
    is(16, 16, 8, MergeBy::kernel);
    is(32, 16, fp8 ? 8 : 4, MergeBy::kernel);
    is(64, 16, fp8 ? 4 : 2, fp8 ? MergeBy::kernel : MergeBy::cluster);
    is(128, 16, 2, MergeBy::cluster);
    is(4096, 8, 1, MergeBy::cluster);
    auto stages = [&](int b, int h_q) { return cuda::plan_mma(problem(90, format, b, h_q), 2048).stages; };
    CHECK((stages(8, 8) == 4 && stages(128, 8) == (fp8 ? 3 : 4) && stages(4096, 8) == 4));
    CHECK((stages(8, 16) == (fp8 ? 3 : 4) && stages(128, 16) == 3 && stages(4096, 16) == 3));
  }
}

TEST_CASE("clusters only where there are any") {
  for (const int cc : {80, 89, 90, 100, 120})
    for (const int b : {1, 16, 32, 64, 128, 300})
      for (const int splits : {0, 1, 2, 3, 4, 8, 16}) {
        smla_problem p = problem(cc, SMLA_KV_BF16, b, 8);
        p.num_splits = splits;
        const cuda::MmaPlan plan = cuda::plan_mma(p, p.topk);
        CAPTURE(cc, b, splits);
        if (plan.merge == cuda::MergeBy::cluster) CHECK((plan.num_splits == 1 || cc >= 90));
        CHECK((cuda::mma_workspace_bytes(plan, b) == 0) == (plan.merge == cuda::MergeBy::cluster));
      }
}

TEST_CASE("num_splits is honoured, and partials fit the workspace exactly") {
  smla_problem p = problem(90, SMLA_KV_BF16, 3, 20);
  p.num_splits = 7;
  const cuda::MmaPlan plan = cuda::plan_mma(p, p.topk);
  CHECK(plan.num_splits == 7);
  const int pairs = plan.head_blocks * plan.instance->heads / 2;
  const int64_t bytes = cuda::mma_workspace_bytes(plan, 3);
  const cuda::Partials partials = cuda::partials_in(nullptr, 3, pairs, 7);
  CHECK(reinterpret_cast<int64_t>(partials.sums) >= 3 * 2 * pairs * 7 * 8);
  CHECK(bytes == reinterpret_cast<int64_t>(partials.sums) + int64_t{3} * 7 * pairs * 256 * 16);
  p.num_splits = 1;
  CHECK(cuda::mma_workspace_bytes(cuda::plan_mma(p, p.topk), 3) == 0);
}

TEST_CASE("reasons name what is refused") {
  const smla_kernel& kernel = find_kernel("sparse_mma");
  auto reason = [&](const smla_problem& p, const smla_kernel& k) {
    char text[200] = "";
    return k.supports(&k, &p, text, sizeof text) ? std::string("supported") : std::string(text);
  };
  smla_problem p = problem(120, SMLA_KV_FP8_656, 1, 8);
  CHECK(reason(p, kernel) == "supported");
  p.device_cc = 0;
  CHECK(reason(p, kernel) == "needs a CUDA device");
  p.device_cc = 75;
  CHECK(reason(p, kernel) == "needs sm_80 (mma.sync of bf16); this is sm_75");
  p.device_cc = 90, p.rope_dtype = SMLA_FP16;
  CHECK(reason(p, kernel) == "the RoPE part of the cache must have q's type");
  p = problem(90, SMLA_KV_BF16, 1, 8);
  CHECK(reason(p, find_kernel("dense_paged")) == "dense: attends every position, the case selects some");
  p.page_stride_bytes += 1152;
  CHECK(reason(p, kernel) == "supported");
  CHECK(reason(p, find_kernel("virtual_block_table")) == "a page table of page size 1 cannot address padded pages (page stride 74880 bytes)");
  char little[8];
  p.device_cc = 0;
  CHECK(kernel.supports(&kernel, &p, little, sizeof little) == 0);
  CHECK(std::strlen(little) == 7);
}

TEST_CASE("logits come back from where they were stored, without bank conflicts") {
  int token_at[128], head_at[128];
  for (int lane = 0; lane < 32; ++lane)
    for (int which = 0; which < 2; ++which)
      for (int half = 0; half < 2; ++half) {
        const int g = lane >> 2, j = lane & 3, h = 2 * j + which, at = cuda::logits_row(h) * 16 + cuda::logits_store(g, j) + half;
        token_at[at] = g + 8 * half, head_at[at] = h;
      }
  for (int h = 0; h < 8; ++h)
    for (int t = 0; t < 16; ++t) {
      const int at = cuda::logits_at(h, cuda::fragment_place(t));
      CHECK((token_at[at] == t && head_at[at] == h));
    }
  for (int which = 0; which < 2; ++which)  // stores of 8 bytes: half a warp covers all 32 banks
    for (int half = 0; half < 2; ++half) {
      std::set<int> banks;
      for (int lane = 16 * half; lane < 16 * half + 16; ++lane)
        for (int i = 0; i < 2; ++i) banks.insert((cuda::logits_row(2 * (lane & 3) + which) * 16 + cuda::logits_store(lane >> 2, lane & 3) + i) % 32);
      CHECK(banks.size() == 32);
    }
  for (int quarter = 0; quarter < 4; ++quarter) {  // loads of 16 bytes: so does a quarter
    std::set<int> banks;
    for (int lane = 8 * quarter; lane < 8 * quarter + 8; ++lane)
      for (int i = 0; i < 4; ++i) banks.insert(cuda::logits_at(lane >> 2, 4 * (lane & 3) + i) % 32);
    CHECK(banks.size() == 32);
  }
}

TEST_CASE("rows in shared memory: what ldmatrix reads at once lies in all banks, and further() walks along a row") {
  auto check = [](auto config) {
    using C = decltype(config);
    for (int c = 0; c + 16 <= 128; c += 16) {
      std::set<int> banks, places;
      for (int row = 0; row < 8; ++row) banks.insert((row * C::kRowPitch + C::place_in_line(row, c)) % 128 / 16);
      CHECK(banks.size() == 8);
      for (int row = 0; row < 8; ++row) places.insert(C::place_in_line(row, c) / 16);
      CHECK((C::kLines ? places.size() == 8 : *places.begin() * 16 == c && places.size() == 1));
    }
    for (int row = 0; row < 16; ++row)
      for (int half = 0; half < 2; ++half)
        for (int steps = 0; steps < 8; ++steps) {
          const int c = steps * 32 + half * 16, place = C::kLines ? c / 128 * 128 + C::place_in_line(row, c % 128) : c;
          CHECK(static_cast<int>(C::further(row * C::kRowPitch + C::place_in_line(row, half * 16), steps)) == row * C::kRowPitch + place);
        }
  };
  check(cuda::MmaConfig<SMLA_KV_BF16, 1, 1, 16, 4, 2>());
  check(cuda::MmaConfig<SMLA_KV_BF16, 2, 2, 16, 4, 1>());
  check(cuda::MmaConfig<SMLA_KV_FP8_656, 1, 1, 32, 4, 2>());
}

TEST_CASE("the warps' shares of the softmax cover each head and token once, without bank conflicts") {
  for (const int tiles8 : {1, 2})
    for (const int steps : {1, 2}) {
      const int per = tiles8 * steps;
      std::set<int> seen;
      for (int warp = 0; warp < 4; ++warp)
        for (int phase = 0; phase < per; ++phase) {  // lanes whose loads go together: 32 elements
          std::set<int> banks;
          for (int lane = phase * 32 / per; lane < (phase + 1) * 32 / per; ++lane) {
            const cuda::SoftmaxShare own = cuda::softmax_share(warp, lane, tiles8, per);
            CHECK((own.head < 8 * tiles8 && own.block < steps && own.place + per <= 16));
            for (int i = 0; i < per; ++i) {
              seen.insert((own.head * steps + own.block) * 16 + own.place + i);
              banks.insert(cuda::logits_at(own.head & 7, own.place + i) % 32);
            }
          }
          CAPTURE(tiles8, steps, warp, phase);
          CHECK(banks.size() == 32);
        }
      CHECK(static_cast<int>(seen.size()) == 8 * tiles8 * 16 * steps);
    }
}

TEST_CASE("FastDiv divides as / does") {
  for (const uint32_t d : {1u, 2u, 3u, 7u, 53u, 64u, 70u, 1000u, 65536u, 0x7fffffffu})
    for (const uint32_t n : {0u, 1u, 52u, 53u, 54u, 63u, 64u, 65535u, 65536u, 123456789u, 0x7ffffffeu, 0x7fffffffu})
      CHECK(cuda::FastDiv::by(d).divide(n) == n / d);
}

}  // namespace
}  // namespace smla
