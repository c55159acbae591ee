// SPDX-License-Identifier: Apache-2.0
// The sm_90a instructions of the kernel: warpgroup MMA and its descriptors, register trading, named barriers, fragment stores, tensor-map copies.
//
// Layouts (all verified on the device). Write side: 16-byte chunk c of row r of a 64 x 64 block stands at r * 128 + ((c ^ (r & 7)) << 4).
//   Q, K, P   K-major, swizzle 128: rows of 128 bytes; the next 16 of k are 32 bytes further, then the next block.
//   V         the K tile again, MN-major: rows are k (tokens); the next 64 columns are a block further, the next 16 tokens 2048 bytes.
// Accumulator m64nNk16: thread (warp w, lane l) holds rows 16 w + l / 4 (and 8 further), columns 8 j + 2 (l % 4) (and the next) in d[4 j .. 4 j + 3];
// packed to 16 bits that is the A fragment of the next product: k step i uses d[8 i .. 8 i + 7].
#pragma once
#include <cuda.h>

#include "kernels/common/ptx.cuh"
#include "kernels/sparse_wgmma/config.h"

namespace smla::cuda {

// ---- matrix descriptors: start >> 4 in bits 0-13, leading byte offset >> 4 in 16-29, stride byte offset >> 4 in 32-45, swizzle in 62-63 (1 = 128
// bytes)
__host__ __device__ constexpr uint64_t descriptor_bits(uint32_t leading_bytes, uint32_t stride_bytes) {
  return uint64_t{leading_bytes >> 4} << 16 | uint64_t{stride_bytes >> 4} << 32 | uint64_t{1} << 62;
}
inline constexpr uint64_t kMajorK = descriptor_bits(16, 1024), kMajorMn = descriptor_bits(kBlockBytes, 1024);
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint64_t bits) { return bits | (address & 0x3ffff) >> 4; }

// ---- warpgroup MMA, fp32 accumulators; operands bf16 or fp16
#define SMLA_R32                                                                                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
  "%30, %31"
#define SMLA_R64                                                                                                                                   \
  SMLA_R32                                                                                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
  "%60, %61, %62, %63"
#define SMLA_R128                                                                                                                                \
  SMLA_R64                                                                                                                                       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91" \
  ", %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115"     \
  ", %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SMLA_F8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SMLA_F32(i) SMLA_F8(i), SMLA_F8(i + 8), SMLA_F8(i + 16), SMLA_F8(i + 24)
#define SMLA_F64(i) SMLA_F32(i), SMLA_F32(i + 32)
#define SMLA_F128 SMLA_F64(0), SMLA_F64(64)

/// s [64 x 64] (+)= a [64 x 16] b [64 x 16]^T, both K-major in shared memory. accumulate = 0 overwrites s.
#define SMLA_SCORES(TYPE)                                                                                                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" SMLA_R32 \
               "}, %32, %33, p, 1, 1, 0, 0;\n}"                                                                                    \
               : SMLA_F32(0)                                                                                                       \
               : "l"(a), "l"(b), "r"(accumulate))
/// d [64 x 256] += a [64 x 16] b [16 x 256], b MN-major in shared memory; a K-major in shared memory, or in registers.
#define SMLA_VALUES_SHARED(TYPE)                                                                                           \
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" SMLA_R128 "}, %128, %129, 1, 1, 1, 0, 1;" \
               : SMLA_F128                                                                                                 \
               : "l"(a), "l"(b))
#define SMLA_VALUES_REGISTERS(TYPE)                                                                                                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" SMLA_R128 "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;" \
               : SMLA_F128                                                                                                                  \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))

/// The same for 128 of the columns, from d[64 * HALF] on.
#define SMLA_HALF_SHARED(TYPE, HALF, B)                                                                                 \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" SMLA_R64 "}, %64, %65, 1, 1, 1, 0, 1;" \
               : SMLA_F64(64 * HALF)                                                                                    \
               : "l"(a), "l"(B))
#define SMLA_HALF_REGISTERS(TYPE, HALF, B)                                                                                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" SMLA_R64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;" \
               : SMLA_F64(64 * HALF)                                                                                                  \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(B))

template <bool kFp16>
__device__ __forceinline__ void wgmma_scores(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (kFp16) SMLA_SCORES("f16");
  else SMLA_SCORES("bf16");
}
/// kColumns at once: 256, or 128 where the launch gives a thread fewer than 158 registers: ptxas refuses the wide instruction then.
template <bool kFp16, int kColumns>
__device__ __forceinline__ void wgmma_values(float (&d)[128], uint64_t a, uint64_t b) {
  if constexpr (kColumns == 128) {
    static_assert(!kFp16);
    constexpr uint64_t kNext = 2 * kBlockBytes >> 4;
    SMLA_HALF_SHARED("bf16", 0, b);
    SMLA_HALF_SHARED("bf16", 1, b + kNext);
  } else if constexpr (kFp16) SMLA_VALUES_SHARED("f16");
  else SMLA_VALUES_SHARED("bf16");
}
template <bool kFp16, int kColumns>
__device__ __forceinline__ void wgmma_values(float (&d)[128], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  if constexpr (kColumns == 128) {
    static_assert(!kFp16);
    constexpr uint64_t kNext = 2 * kBlockBytes >> 4;
    SMLA_HALF_REGISTERS("bf16", 0, b);
    SMLA_HALF_REGISTERS("bf16", 1, b + kNext);
  } else if constexpr (kFp16) SMLA_VALUES_REGISTERS("f16");
  else SMLA_VALUES_REGISTERS("bf16");
}
/// Ties the values of d to this point of the program: reads after it cannot be hoisted above the preceding wait.
__device__ __forceinline__ void pin(float (&d)[32]) { asm volatile("" : SMLA_F32(0)::"memory"); }
__device__ __forceinline__ void pin(float (&d)[128]) { asm volatile("" : SMLA_F128::"memory"); }
#undef SMLA_SCORES
#undef SMLA_VALUES_SHARED
#undef SMLA_VALUES_REGISTERS
#undef SMLA_HALF_SHARED
#undef SMLA_HALF_REGISTERS
#undef SMLA_R32
#undef SMLA_R64
#undef SMLA_R128
#undef SMLA_F8
#undef SMLA_F32
#undef SMLA_F64
#undef SMLA_F128

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// ---- registers of a warpgroup
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// ---- named barriers of both consumer warpgroups
inline constexpr int kConsumers = 2 * kWarpgroup;
__device__ __forceinline__ void named_sync(int id) { asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kConsumers) : "memory"); }
__device__ __forceinline__ void named_arrive(int id) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kConsumers) : "memory"); }

// ---- shared memory by its 32-bit address
__device__ __forceinline__ float load_shared(uint32_t at) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
  return v;
}
__device__ __forceinline__ uint64_t load_shared64(uint32_t at) {
  uint64_t v;
  asm volatile("ld.shared.b64 %0, [%1];" : "=l"(v) : "r"(at) : "memory");
  return v;
}
__device__ __forceinline__ void store_shared(uint32_t at, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory"); }
__device__ __forceinline__ void store_shared(uint32_t at, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
/// Four 8 x 8 matrices of 16 bits; lane l gives the address of row l % 8 of matrix l / 8; the registers are in fragment order.
__device__ __forceinline__ void store_matrix(uint32_t at, uint32_t v0, uint32_t v1, uint32_t v2, uint32_t v3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v0), "r"(v1), "r"(v2), "r"(v3) : "memory");
}
/// 16 bytes that nobody writes meanwhile; zeros, and nothing is read, where `wanted` is false. Volatile: it is to stay where it is written.
/// Kept in L1: pieces of 64 bytes, one after the other, share lines (without: fp8_656 at 128 heads 202 us instead of 172).
__device__ __forceinline__ uint4 load_global128(const void* from, bool wanted) {
  uint4 v;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(from), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ __forceinline__ uint2 load_global64(const void* from, bool wanted) {
  uint2 v;
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n@p ld.global.nc.v2.b32 {%0, %1}, [%2];\n}"
               : "=&r"(v.x), "=&r"(v.y)
               : "l"(from), "r"(static_cast<int>(wanted)));
  return v;
}
/// copy16 of what is read once: L2 gives up these lines first.
__device__ __forceinline__ void copy16_once(uint32_t dst, const void* src, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(dst), "l"(src), "r"(bytes), "l"(kEvictFirst)
               : "memory");
}

/// This thread's copy16 have all landed.
__device__ __forceinline__ void copy16_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- the copy engine: a box of 64 columns x 64 rows of page `page`, swizzle 128; bytes counted at `bar`
__device__ __forceinline__ void tensor_copy(uint32_t dst, const CUtensorMap& map, int column, int row, int page, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(dst),
               "l"(&map), "r"(column), "r"(row), "r"(page), "r"(bar)
               : "memory");
}

/// Asks for `bytes` (a multiple of 16) to be brought into L2.
__device__ __forceinline__ void prefetch_l2(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/// The same for one line.
__device__ __forceinline__ void prefetch_line_l2(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

}  // namespace smla::cuda
