// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/door.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "cases/kv_format.h"
#include "cases/words.h"

namespace smla::cuda {
namespace {
thread_local std::string error_text;
}

int decline(char* reason, uint64_t reason_bytes, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (reason && reason_bytes) vsnprintf(reason, reason_bytes, format, arguments);
  va_end(arguments);
  return 0;
}

int supports_common(const smla_problem& p, int min_cc, bool exact_cc, const char* needs, char* reason, uint64_t n) {
  if (p.device_cc == 0) return decline(reason, n, "needs a CUDA device");
  if (p.device_cc < min_cc || (exact_cc && p.device_cc / 10 != min_cc / 10))
    return decline(reason, n, "needs sm_%d (%s); this is sm_%d", min_cc, needs, p.device_cc);
  if (p.kv_format != SMLA_KV_BF16 && p.kv_format != SMLA_KV_FP16 && p.kv_format != SMLA_KV_FP8_656)
    return decline(reason, n, "kv_format %s is not implemented", std::string(name_of(static_cast<KvFormat>(p.kv_format))).c_str());
  if (p.kv_format != SMLA_KV_FP8_656 && (p.kv_format == SMLA_KV_FP16) != (p.q_dtype == SMLA_FP16))
    return decline(reason, n, "a 16-bit cache must have q's type");
  if (p.d_v != 512 || (p.d_qk != 576 && (p.d_qk != 512 || p.kv_format == SMLA_KV_FP8_656)))
    return decline(reason, n, "d_qk = %d, d_v = %d: only 576 (16-bit caches also 512) and 512", p.d_qk, p.d_v);
  if (p.h_q < 1 || p.h_q > 128) return decline(reason, n, "h_q = %d: 1 to 128", p.h_q);
  if (p.num_splits > 512) return decline(reason, n, "num_splits = %d: at most 512", p.num_splits);
  if (p.page_stride_bytes % 16)
    return decline(reason, n, "page stride of %lld bytes: must be a multiple of 16", static_cast<long long>(p.page_stride_bytes));
  const int64_t unit = std::gcd(p.page_stride_bytes, row_bytes(static_cast<KvFormat>(p.kv_format), p.d_qk));
  if (p.num_pages > int64_t{0xffffffff} / std::max<int64_t>(p.page_stride_bytes / unit, 1))
    return decline(reason, n, "%d pages of %lld bytes: rows are numbered with 32 bits in units of %lld bytes", p.num_pages,
                   static_cast<long long>(p.page_stride_bytes), static_cast<long long>(unit));
  for (int i = 0; i < 3; ++i)
    if (p.q_stride_bytes[i] % 16 || p.out_stride_bytes[i] % 16) return decline(reason, n, "strides of q and out must be multiples of 16 bytes");
  return 1;
}

int report(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return 0;
  error_text = std::string(what) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status);
  return 1;
}

void last_error(const smla_kernel*, char* text, uint64_t text_bytes) {
  if (text && text_bytes) snprintf(text, text_bytes, "%s", error_text.c_str());
}

cudaError_t allow_shared_memory(const void* kernel, int bytes) {
  static std::mutex mutex;
  static std::set<std::pair<int, const void*>> done;
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  const std::lock_guard lock(mutex);
  if (done.contains({device, kernel})) return cudaSuccess;
  if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes); status != cudaSuccess)
    return status;
  if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
      status != cudaSuccess)
    return status;
  done.insert({device, kernel});
  return cudaSuccess;
}

}  // namespace smla::cuda
