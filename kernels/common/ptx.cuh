// SPDX-License-Identifier: Apache-2.0
// Thin wrappers over the PTX that the kernels use. Shared-memory addresses are the 32-bit ones of the shared window.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

static_assert(__cplusplus >= 202002L, "the CUDA sources are C++20: pass -std=c++20 to nvcc");

namespace smla::cuda {

#if defined(__CUDA_ARCH__)
inline constexpr int kArch = __CUDA_ARCH__;
#else
inline constexpr int kArch = 0;
#endif
inline constexpr bool kHasBulk = kArch >= 900;  // cp.async.bulk, expect_tx, elect.sync, programmatic dependent launch
inline constexpr bool kHasE4m3 = kArch >= 890;  // the e4m3 conversion instruction

__device__ __forceinline__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// ---- mbarrier
__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
/// Makes initialised barriers visible to the async proxy; a CTA barrier must follow.
__device__ __forceinline__ void mbar_init_fence() {
  if constexpr (kHasBulk) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ __forceinline__ void mbar_arrive_expect_tx(uint32_t bar, uint32_t bytes) {
  if constexpr (kHasBulk) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
/// Never blocks (try_wait may suspend the thread: as a readiness test it is a wait in disguise).
__device__ __forceinline__ bool mbar_test(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(bar), "r"(parity)
               : "memory");
  return done;
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  if constexpr (kHasBulk) {
    uint32_t done;
    do {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(bar), "r"(parity)
                   : "memory");
    } while (!done);
  } else {
    while (!mbar_test(bar, parity)) {}
  }
}

// ---- copies, global to shared
/// bytes: a multiple of 16; both addresses 16-byte aligned. Completion is counted in bytes at `bar`.
__device__ __forceinline__ void bulk_copy(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  if constexpr (kHasBulk)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src), "r"(bytes), "r"(bar)
                 : "memory");
}
/// L2's policy for what is read once, its lines are given up first: what createpolicy.fractional.L2::evict_first gives for all lines.
inline constexpr uint64_t kEvictFirst = 0x12f0000000000000;
/// The same for what is read once.
__device__ __forceinline__ void bulk_copy_once(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  if constexpr (kHasBulk)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(dst), "l"(src),
                 "r"(bytes), "r"(bar), "l"(kEvictFirst)
                 : "memory");
}
/// 16 bytes; `bytes` = 0 writes 16 zero bytes and reads nothing.
__device__ __forceinline__ void copy16(uint32_t dst, const void* src, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy16(uint32_t dst, const void* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
/// The same under a policy of L2, which should come from the kernel's parameters: a literal is moved to uniform registers anew for each copy.
/// `wanted`: false does nothing, without a branch.
__device__ __forceinline__ void copy16_under(uint64_t policy, uint32_t dst, const void* src, uint32_t bytes, bool wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n"
      "@p cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %4;\n}" ::"r"(dst),
      "l"(src), "r"(bytes), "r"(static_cast<uint32_t>(wanted)), "l"(policy)
      : "memory");
}
/// One arrival of this thread at `bar` once all its earlier copy16 have landed (count it in mbar_init).
__device__ __forceinline__ void copy16_arrive(uint32_t bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
/// Waits for all copy16 of this thread.
__device__ __forceinline__ void copy16_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/// Orders this thread's ordinary shared-memory accesses before later ones of the async proxy (bulk copies, wgmma).
__device__ __forceinline__ void fence_proxy_async() {
  if constexpr (kHasBulk) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// One lane of a converged warp.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected = 0;
  if constexpr (kHasBulk) asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected;
}

// ---- clusters (sm_90 and later; before, a CTA is a cluster of its own and needs none of this)
/// A barrier of all threads of the cluster that have not ended; what they wrote to shared memory before it is seen by all after it.
__device__ __forceinline__ void cluster_barrier() {
  if constexpr (kHasBulk) asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// The same for threads that have read and written nothing since which the others must see: they only come together.
__device__ __forceinline__ void cluster_barrier_relaxed() {
  if constexpr (kHasBulk) asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
/// The same place in the shared memory of the cluster's CTA `rank`.
__device__ __forceinline__ uint32_t peer_address(uint32_t address, int rank) {
  if constexpr (kHasBulk) asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(rank));
  return address;
}
__device__ __forceinline__ float4 load_peer(uint32_t address) {
  float4 v;
  if constexpr (kHasBulk)
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
  else asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float2 load_peer2(uint32_t address) {
  float2 v;
  if constexpr (kHasBulk) asm volatile("ld.shared::cluster.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  else asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

// ---- programmatic dependent launch: no effect where the launch did not ask for it
__device__ __forceinline__ void allow_dependent_launch() {
  if constexpr (kHasBulk) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_previous_kernel() {
  if constexpr (kHasBulk) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// ---- matrix fragments (m8n8, 16-bit); lane l gives the address of row l % 8 of matrix l / 8
__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
/// c [16 x 8] += a [16 x 16] b [16 x 8], fp32 accumulators; operands fp16 or bf16.
template <bool kFp16>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kFp16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// The same with the operand type chosen at run time, without a branch.
__device__ __forceinline__ void mma_either(bool fp16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "@p mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      "@!p mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n}"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(static_cast<uint32_t>(fp16)));
}

// ---- arithmetic
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 1 / x to 1 ulp.
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 2^exponent as a float; exponent in [-126, 127].
__device__ __forceinline__ float pow2(int exponent) { return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23); }

}  // namespace smla::cuda
