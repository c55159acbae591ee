// SPDX-License-Identifier: Apache-2.0
// A kernel of your own, in one file: copy it, put your launch where the loops are, and test it without rebuilding anything else:
//   c++ -std=c++20 -O2 -shared -fPIC -I. kernels/api/example_plugin.cc -o example_plugin.so
//   smla check --plugin ./example_plugin.so
// It takes bf16 queries over a bf16 cache, keeps everything in fp32 and declines the rest with a reason.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/api/smla_kernel.h"

namespace {

float from_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}

uint16_t to_bf16(float x) {  // to nearest even; x is finite
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// What this kernel claims, for every shape: P in fp32, the same bits at every run. All that is not said is the reference convention.
int contract(const smla_kernel*, const smla_problem*, smla_contract* out) {
  out->p_round = SMLA_TYPE_FP32;
  out->deterministic = 1;
  return 0;
}

// The only place that says what is refused, and why.
int supports(const smla_kernel*, const smla_problem* p, char* reason, uint64_t reason_bytes) {
  if (p->q_dtype == SMLA_BF16 && p->kv_format == SMLA_KV_BF16) return 1;
  std::snprintf(reason, reason_bytes, "only bf16 queries over a bf16 cache");
  return 0;
}

int64_t workspace_bytes(const smla_kernel*, const smla_problem*) { return 0; }

template <class T>
T* at(T* base, int64_t offset_bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(base) + offset_bytes);
}

int launch(const smla_kernel*, const smla_problem* p, const smla_buffers* io, void*, void*) {
  std::vector<float> score(static_cast<size_t>(p->topk)), sum(static_cast<size_t>(p->d_v));
  const auto row_of = [&](int32_t slot) {  // offsets need 64 bits
    return at(static_cast<const uint16_t*>(io->kv), slot / p->page_size * p->page_stride_bytes + int64_t{slot % p->page_size} * p->d_qk * 2);
  };
  for (int32_t r = 0; r < p->b; ++r)
    for (int32_t j = 0; j < p->s_q; ++j) {
      const int32_t* list = at(io->indices, r * p->indices_stride_bytes[0] + j * p->indices_stride_bytes[1]);
      const int32_t length = io->topk_length == nullptr ? p->topk : io->topk_length[r * p->s_q + j];
      const auto valid = [&](int32_t i) { return list[i] >= 0 && list[i] < p->num_slots; };
      for (int32_t h = 0; h < p->h_q; ++h) {
        const auto* q = at(static_cast<const uint16_t*>(io->q), r * p->q_stride_bytes[0] + j * p->q_stride_bytes[1] + h * p->q_stride_bytes[2]);
        float top = -INFINITY;
        for (int32_t i = 0; i < length && i < p->topk; ++i) {
          score[i] = -INFINITY;
          if (!valid(i)) continue;
          const uint16_t* k = row_of(list[i]);
          float dot = 0;
          for (int32_t c = 0; c < p->d_qk; ++c) dot += from_bf16(q[c]) * from_bf16(k[c]);
          score[i] = dot * p->sm_scale;
          top = std::fmax(top, score[i]);
        }
        float total = 0;
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int32_t i = 0; i < length && i < p->topk; ++i) {
          if (!valid(i)) continue;
          const float weight = std::exp(score[i] - top);
          const uint16_t* v = row_of(list[i]);
          total += weight;
          for (int32_t d = 0; d < p->d_v; ++d) sum[d] += weight * from_bf16(v[d]);
        }
        const float lse = total > 0 ? top + std::log(total) : -INFINITY;
        const float keep = total > 0 ? 1 / (total * (io->sink == nullptr ? 1 : 1 + std::exp(io->sink[h] - lse))) : 0;
        auto* out = at(static_cast<uint16_t*>(io->out), r * p->out_stride_bytes[0] + j * p->out_stride_bytes[1] + h * p->out_stride_bytes[2]);
        for (int32_t d = 0; d < p->d_v; ++d) out[d] = to_bf16(sum[d] * keep);
        at(static_cast<float*>(io->lse), r * p->lse_stride_bytes[0] + j * p->lse_stride_bytes[1])[h] = lse;
      }
    }
  return 0;  // launched
}

const smla_kernel kKernel = {
    .struct_size = sizeof(smla_kernel),
    .device = SMLA_DEVICE_CPU,
    .name = "example",
    .description = "an example in one file: bf16, fp32 inside",
    .user = nullptr,
    .contract = contract,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .prepare = nullptr,
    .launch = launch,
    .last_error = nullptr,
    .splits_used = nullptr,
};
const smla_kernel* const kKernels[] = {&kKernel};
const smla_library kLibrary = {SMLA_ABI_VERSION, sizeof(smla_library), 1, 0, kKernels};

}  // namespace

extern "C" SMLA_EXPORT const smla_library* smla_get_library(void) { return &kLibrary; }
