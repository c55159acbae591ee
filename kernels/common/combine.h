// SPDX-License-Identifier: Apache-2.0
// Split partials in the workspace, and their merge.
#pragma once
#include <cuda_runtime.h>

#include "kernels/common/job.h"

namespace smla::cuda {

inline constexpr int kMaxSplits = 512;

/// Where a pair's two heads and a unit's two columns stand: the order in which a kernel's accumulators lie, so that stores are coalesced.
enum class UnitOrder : int32_t {
  mma16,  // pair i: heads 2i, 2i+1.  Unit u: columns 16 (u / 8) + u % 8 and 8 further
  mma8,   // pair i: heads 2i, 2i+1.  Unit u: columns 16 (u / 8) + 2 (u % 8) and the next
  wgmma   // pair i: heads 16 (i / 8) + i % 8 and 8 further.  Unit u: columns 2u and the next
};

/// Partials of every (token, split), FP32.
///   sums  [T][num_splits][pairs][256] float4: one unit = {head a: column 0, 1; head b: column 0, 1}, UNNORMALISED, relative to the split's
///   reference. state [T][2 * pairs][num_splits] float2: {reference, BASE 2; sum}. sum = 0: the split saw no key, and its units are never read.
struct Partials {
  float4* sums;
  float2* state;
  int32_t pairs, num_splits;
};
inline int64_t state_bytes(int64_t tokens, int pairs, int num_splits) { return (tokens * 2 * pairs * num_splits * 8 + 255) / 256 * 256; }
inline int64_t partial_bytes(int64_t tokens, int pairs, int num_splits) {
  return num_splits > 1 ? state_bytes(tokens, pairs, num_splits) + tokens * num_splits * pairs * 4096 : 0;
}
inline Partials partials_in(void* workspace, int64_t tokens, int pairs, int num_splits) {
  char* base = static_cast<char*>(workspace);
  return {reinterpret_cast<float4*>(base + state_bytes(tokens, pairs, num_splits)), reinterpret_cast<float2*>(base), pairs, num_splits};
}

/// out = sum_s 2^(ref_s - R) sums_s / (L + sink share), L = sum_s 2^(ref_s - R) sum_s, R = max_s ref_s; lse BASE E, SINK EXCLUDED.
/// Fixed order of summation. `order`: mma16 or mma8 (the warpgroup kernels have a merge of their own). `overlap`: programmatic dependent launch
/// (sm_90 and later): as many blocks as the device has SMs, sm_count, are in place when the predecessor ends.
cudaError_t launch_combine(const Job& job, const Partials& partials, UnitOrder order, int sm_count, bool overlap, cudaStream_t stream);

}  // namespace smla::cuda
