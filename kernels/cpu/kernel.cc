// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/kernel.h"

#include <cstdio>
#include <exception>
#include <string>

#include "kernels/contract.h"

namespace smla::cpu {
namespace {

thread_local std::string last_error_text;

const Spec& spec_of(const smla_kernel* self) { return *static_cast<const Spec*>(self->user); }

/// What no CPU kernel can do, or null.
const char* refuses(const Call& c) {
  const smla_problem& p = c.p;
  switch (p.kv_format) {
    case SMLA_KV_BF16:
    case SMLA_KV_FP16:
      if (p.kv_format != p.q_dtype) return "a 16-bit cache must have q's type";
      break;
    case SMLA_KV_FP8_656:
      if (p.d_qk != Fp8Row656::kLatent + Fp8Row656::kRope) return "kv_format fp8_656 has d_qk 576";
      break;
    case SMLA_KV_FP8_584:
      return "kv_format fp8_584 is not implemented";
    case SMLA_KV_FP8_576:
      return "kv_format fp8_576 is not implemented";
    default:
      return "unknown kv_format";
  }
  if (p.d_qk % 8 != 0 || p.d_v % 16 != 0) return "d_qk must be a multiple of 8 and d_v of 16";
  if (p.d_v > p.d_qk) return "d_v must not exceed d_qk";
  if (c.fp8() && p.d_v > Fp8Row656::kLatent) return "kv_format fp8_656 has d_v at most 512";
  if (c.config.source == Source::table && !(p.flags & SMLA_FLAG_DENSE_SET))
    return "a dense kernel: the case's indices are not every position up to the query's own";
  return nullptr;
}

int contract(const smla_kernel* self, const smla_problem* p, smla_contract* out) {
  const Spec& spec = spec_of(self);
  const Config& config = spec.declares ? *spec.declares : spec.config;
  const bool fp8 = p->kv_format == SMLA_KV_FP8_656;
  Contract k;
  k.invalid_index = config.invalid_index;
  k.padding = config.padding;
  k.lse_dtype = config.lse_dtype;
  k.lse_base = config.lse_base;
  k.empty_lse = config.empty_lse;
  k.sink_in_lse = config.sink_in_lse;
  k.q = config.q;
  k.k = k.v = fp8 && config.fp8 == Fp8::dequantise ? Rounding::q : Rounding::exact;
  k.p = config.p;
  k.p_scale = config.p_scale;
  k.row_sum = config.row_sum;
  k.p_max = (fp8 && config.fp8 == Fp8::fold) || config.max_rule != MaxRule::exact ? PMax::any : PMax::one;
  k.part = config.part;
  k.deterministic = k.scale_exact = true;
  k.batch_invariant = p->num_splits > 0 || config.own_splits == OwnSplits::one;
  *out = to_c(k);
  return 0;
}

int supports(const smla_kernel* self, const smla_problem* p, char* reason, uint64_t reason_bytes) {
  const Spec& spec = spec_of(self);
  const Call call{*p, {}, spec.config};
  const char* why = refuses(call);
  if (!why) why = spec.body.refuses(call);
  if (why && reason_bytes > 0) std::snprintf(reason, reason_bytes, "%s", why);
  return !why;
}

int64_t workspace_bytes(const smla_kernel* self, const smla_problem* p) {
  const Spec& spec = spec_of(self);
  return spec.body.workspace_bytes({*p, {}, spec.config});
}

int launch(const smla_kernel* self, const smla_problem* p, const smla_buffers* buffers, void* workspace, void*) {
  const Spec& spec = spec_of(self);
  try {
    spec.body.run(spec.defect, {*p, *buffers, spec.config}, workspace);
    return 0;
  } catch (const std::exception& error) {  // no thread to be had
    last_error_text = error.what();
    return 1;
  }
}

void last_error(const smla_kernel*, char* text, uint64_t text_bytes) {
  if (text_bytes > 0) std::snprintf(text, text_bytes, "%s", last_error_text.c_str());
}

int32_t splits_used(const smla_kernel* self, const smla_problem* p) {
  const Spec& spec = spec_of(self);
  return spec.body.splits({*p, {}, spec.config});
}

}  // namespace

std::vector<smla_kernel> door(std::span<const Spec> specs) {
  std::vector<smla_kernel> kernels;
  for (const Spec& spec : specs)
    kernels.push_back({sizeof(smla_kernel), SMLA_DEVICE_CPU, spec.name, spec.description, &spec, contract, supports, workspace_bytes, nullptr, launch,
                       last_error, splits_used});
  return kernels;
}

}  // namespace smla::cpu
