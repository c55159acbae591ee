// SPDX-License-Identifier: Apache-2.0
// Every CPU kernel, healthy variants included, against attention in fp64 spelled out here, over a spread of small hostile cases.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/contract.h"
#include "kernels/cpu/number.h"
#include "kernels/door.h"
#include "kernels/host_call.h"
#include "kernels/registry.h"
#include "smla_catch.h"

namespace smla {
namespace {

double value_16(FloatType type, uint16_t code) {
  const int exponent_bits = type == FloatType::bf16 ? 8 : 5, mantissa_bits = 15 - exponent_bits;
  const int exponent = (code & 0x7fff) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits) : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return code & 0x8000 ? -magnitude : magnitude;
}

double value_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

std::vector<double> key_of(const Inputs& in, int64_t slot) {
  std::vector<uint8_t> row(static_cast<size_t>(in.row_bytes));
  kv_row(in, slot, row.data());
  std::vector<double> k(static_cast<size_t>(in.c.d_qk));
  const auto u16 = [&](int64_t at) { return static_cast<uint16_t>(row[size_t(at)] | row[size_t(at) + 1] << 8); };
  for (int d = 0; d < in.c.d_qk; ++d) {
    if (in.c.kv_format != KvFormat::fp8_656) {
      k[d] = value_16(in.c.q_dtype, u16(2 * d));
    } else if (d < 512) {
      float scale;
      std::memcpy(&scale, &row[512 + d / 128 * 4], 4);
      k[d] = value_e4m3(row[d]) * scale;
    } else {
      k[d] = value_16(in.c.rope_dtype, u16(528 + 2 * (d - 512)));
    }
  }
  return k;
}

/// One (token, head): out, lse, and the size of rounding errors: sum p |v|, and sum p |q||k| sm_scale.
struct Expected {
  std::vector<double> out, spread;
  double lse, score_error;
};
Expected attend(const Inputs& in, int64_t t, int h) {
  const Case& c = in.c;
  std::vector<uint16_t> codes(static_cast<size_t>(c.d_qk));
  q_row(in, t, h, codes.data());
  std::vector<double> q, x;
  std::vector<std::vector<double>> keys;
  double q_norm = 0, m = -INFINITY;
  for (const uint16_t code : codes) q.push_back(value_16(c.q_dtype, code)), q_norm += q.back() * q.back();
  Expected want = {std::vector<double>(512), std::vector<double>(512), 0, 0};
  for (int i = 0; i < in.k_t(t); ++i) {
    const int64_t slot = in.indices[t * c.topk + i];
    if (slot < 0 || slot >= in.num_slots) continue;
    keys.push_back(key_of(in, slot));
    double dot = 0, k_norm = 0;
    for (int d = 0; d < c.d_qk; ++d) dot += q[d] * keys.back()[d], k_norm += keys.back()[d] * keys.back()[d];
    x.push_back(dot * c.sm_scale);
    want.score_error = std::max(want.score_error, std::sqrt(q_norm * k_norm) * c.sm_scale);
    m = std::max(m, x.back());
  }
  double sum = 0;
  for (const double xi : x) sum += std::exp(xi - m);
  want.lse = x.empty() ? -INFINITY : m + std::log(sum);
  const double sink = in.sink.empty() ? -INFINITY : in.sink[h], kept = sink == -INFINITY ? 1 : 1 / (1 + std::exp(sink - want.lse));
  for (size_t i = 0; i < x.size(); ++i)
    for (int d = 0; d < 512; ++d) {
      const double p = std::exp(x[i] - want.lse) * kept;
      want.out[d] += p * keys[i][d];
      want.spread[d] += p * std::fabs(keys[i][d]);
    }
  return want;
}

double expected_lse(const Contract& contract, double lse, double sink) {
  if (contract.sink_in_lse && sink != -INFINITY) lse = lse == -INFINITY ? sink : std::max(lse, sink) + std::log1p(std::exp(-std::fabs(lse - sink)));
  if (lse == -INFINITY && contract.empty_lse == EmptyLse::pos_inf) return INFINITY;
  if (lse == -INFINITY && contract.empty_lse == EmptyLse::large_negative) return -6e28;
  return contract.lse_base == LseBase::two ? lse / std::log(2.0) : lse;
}

/// Looser than the harness's budget, which judges the same kernels by what they declare: worst-case sums of the declared roundings.
void check(const HostCall& call, const std::vector<Expected>& all, const smla_kernel& kernel, const Contract& contract, const HostResult& got) {
  const Inputs& in = call.inputs();
  const FloatType type = in.c.q_dtype;
  const auto u = [&](Rounding rounding) { return unit_roundoff(rounding, type); };
  for (int64_t t = 0; t < in.tokens(); ++t)
    for (int h = 0; h < in.c.h_q; ++h) {
      const Expected& want = all[t * in.c.h_q + h];
      const double score = want.score_error * (0x1p-22 + u(contract.q) + u(contract.k));
      const double relative = u(contract.p) + u(contract.v) + u(contract.part) + 2 * score + 0x1p-18;
      int bad = 0;
      for (int d = 0; d < 512; ++d) {
        const double out = cpu::from_16(type, got.out[(t * in.c.h_q + h) * 512 + d]);
        bad += score > 0.5 ? !std::isfinite(out)  // another key may well win
                           : !(std::fabs(out - want.out[d]) <= 1.01 * u(Rounding::q) * std::fabs(want.out[d]) + relative * want.spread[d] + 0x1p-24);
      }
      INFO(kernel.name << "   " << to_line(in.c) << "   " << to_word(in.variant) << "   t " << t << " h " << h);
      CHECK(bad == 0);
      if (contract.lse_dtype == LseType::none) continue;
      const double lse = got.lse[t * in.c.h_q + h], expected = expected_lse(contract, want.lse, in.sink.empty() ? -INFINITY : in.sink[h]);
      const double lse_type = contract.lse_dtype == LseType::bf16 ? 0x1p-8 : 0x1p-22;
      const bool close = std::isinf(expected) ? lse == expected
                                              : std::fabs(lse - expected) <= lse_type * (std::fabs(expected) + 1) + 2 * score +
                                                                                 (contract.row_sum == RowSum::rounded ? u(contract.p) : 0) + 0x1p-20;
      INFO("lse " << lse << " expected " << expected);
      CHECK(close);
    }
}

const char* const kCases[] = {
    "decode b=2 s_q=1 h_q=5 s_kv=300 topk=128",
    "decode b=2 s_q=2 h_q=8 s_kv=300 topk=200 topk_length=1 pattern=padded sink=finite",
    "decode b=1 s_q=1 h_q=1 s_kv=700 topk=576 pattern=leading_invalid num_splits=4",
    "decode b=3 s_q=2 h_q=4 s_kv=200 topk=96 pattern=all_invalid sink=mixed num_splits=3",
    "decode b=2 s_q=3 h_q=3 s_kv=128 topk=130 pattern=interleaved_invalid num_splits=32 kv_format=fp8_656",
    "decode b=2 s_q=1 h_q=12 s_kv=257 topk=100 pattern=out_of_range kv_format=fp8_656 page_size=53",
    "decode b=2 s_q=2 h_q=2 s_kv=190 topk=128 topk_length=1 pattern=stale_tail kv_format=fp8_656 sink=pinf",
    "decode b=2 s_q=1 h_q=3 s_kv=150 topk=140 pattern=duplicates q_dtype=fp16 kv_format=fp16 sink=ninf",
    "decode b=2 s_q=2 h_q=2 s_kv=400 topk=160 q_dtype=fp16 rope_dtype=fp16 kv_format=fp8_656 num_splits=2",
    "decode b=4 s_q=2 h_q=2 s_kv=130 topk=192 pattern=dense lens=mixed num_splits=2",
    "decode b=3 s_q=3 h_q=2 s_kv=70 topk=70 pattern=dense lens=mixed table=query kv_format=fp8_656 page_size=16",
    "prefill b=1 s_q=20 h_q=2 s_kv=96 topk=64 d_qk=512",
    "decode b=1 s_q=1 h_q=4 s_kv=320 topk=320 pattern=dense values=rising_max page_size=1",
    "decode b=1 s_q=1 h_q=4 s_kv=320 topk=256 pattern=contiguous values=late_max num_splits=2 kv_format=fp8_656",
    "decode b=1 s_q=2 h_q=6 s_kv=200 topk=128 values=large_logits sink=finite",
    "decode b=1 s_q=1 h_q=4 s_kv=200 topk=128 values=outliers kv_format=fp8_656",
    "decode b=1 s_q=1 h_q=2 s_kv=200 topk=128 values=tiny",
    "decode b=2 s_q=1 h_q=2 s_kv=300 topk=128 page_stride_rows=70",
};

bool all(const std::vector<const smla_kernel*>& kernels, const char* line, const Variant& variant = {}) {
  HostCall call(parse_line(line), variant);
  std::vector<Expected> want;
  for (int64_t t = 0; t < call.inputs().tokens(); ++t)
    for (int h = 0; h < call.inputs().c.h_q; ++h) want.push_back(attend(call.inputs(), t, h));
  bool any = false;
  for (const smla_kernel* kernel : kernels) {
    const Contract declared = contract(*kernel, call.problem());
    const bool asks_too_much = declared.padding == Padding::tail_only && !(call.inputs().flags & SMLA_FLAG_TAIL_PADDED);
    if (!call.declines(*kernel).empty() || asks_too_much) continue;
    any = true;
    check(call, want, *kernel, declared, call.run(*kernel));
    INFO(kernel->name << "   " << line);
    CHECK_FALSE(call.touched_other_memory());
  }
  return any;
}

TEST_CASE("built-in CPU kernels answer every case rightly") {
  for (const char* line : kCases) {
    CHECK(all(kernels(KernelGroup::built_in), line));
    Variant strided;
    strided.pad_strides = true;
    CHECK(all(kernels(KernelGroup::built_in), line, strided));
  }
}

TEST_CASE("healthy variants answer every case as they declare") {
  for (const char* line : kCases) CHECK(all(kernels(KernelGroup::variant), line));
}

TEST_CASE("every built-in CPU kernel runs somewhere, and says why it does not elsewhere") {
  for (const smla_kernel* kernel : kernels(KernelGroup::built_in)) {
    if (kernel->device != SMLA_DEVICE_CPU) continue;
    int runs = 0;
    for (const char* line : kCases) {
      const std::string reason = HostCall(parse_line(line)).declines(*kernel);
      runs += reason.empty();
      if (std::string(kernel->name) == "cpu_naive" || std::string(kernel->name) == "cpu_split") CHECK(reason.empty());
    }
    CHECK(runs >= 2);
  }
  CHECK_THAT(HostCall(parse_line(kCases[0])).declines(find_kernel("cpu_dense")), ContainsSubstring("dense"));
  CHECK_THAT(HostCall(parse_line("decode b=2 s_q=1 h_q=2 s_kv=300 topk=128 page_stride_rows=70")).declines(find_kernel("cpu_virtual_block_table")),
             ContainsSubstring("padded page stride"));
}

TEST_CASE("any number of splits, more than there are keys included, gives the same answer") {
  for (const int splits : {1, 2, 3, 4, 8, 32, 100}) {
    Variant variant;
    variant.num_splits = splits;
    for (const char* line : {"decode b=1 s_q=2 h_q=3 s_kv=500 topk=300 pattern=interleaved_invalid sink=finite",
                             "decode b=2 s_q=1 h_q=2 s_kv=500 topk=260 pattern=padded topk_length=1 kv_format=fp8_656"}) {
      CHECK(all({&find_kernel("cpu_split"), &find_kernel("cpu_split+part_bf16"), &find_kernel("cpu_virtual_block_table")}, line, variant));
      HostCall call(parse_line(line), variant);
      CHECK(splits_used(find_kernel("cpu_split"), call.problem()) == splits);
    }
  }
}

TEST_CASE("bits depend neither on threads, nor on poison, nor on the run") {
  for (const char* line : {"decode b=1 s_q=2 h_q=3 s_kv=900 topk=700 pattern=interleaved_invalid",
                           "decode b=3 s_q=2 h_q=2 s_kv=130 topk=192 pattern=dense lens=mixed num_splits=3 kv_format=fp8_656"})
    for (const smla_kernel* kernel : kernels(KernelGroup::built_in)) {
      HostCall base(parse_line(line));
      if (!base.declines(*kernel).empty()) continue;
      const HostResult once = base.run(*kernel);
      INFO(kernel->name << "   " << line);
      CHECK(base.run(*kernel) == once);
      CHECK(HostCall(parse_line(line), {}, 4).run(*kernel) == once);
      for (const Poison poison : {Poison::huge, Poison::random, Poison::numbers}) {
        Variant variant;
        variant.poison = poison;
        CHECK(HostCall(parse_line(line), variant).run(*kernel) == once);
      }
    }
}

TEST_CASE("declared exact under scaling, and invariant under the batch where declared") {
  const char* line = "decode b=3 s_q=1 h_q=3 s_kv=300 topk=200";
  for (const char* name : {"cpu_naive", "cpu_split", "cpu_split+max_lazy", "cpu_split+q_e4m3"}) {
    INFO(name);
    const smla_kernel& kernel = find_kernel(name);
    HostCall call(parse_line(line));
    REQUIRE(contract(kernel, call.problem()).scale_exact);
    Variant scaled;
    scaled.scale_q_log2 = 3;
    const HostResult once = call.run(kernel);
    CHECK(HostCall(parse_line(line), scaled).run(kernel) == once);

    Variant reversed;
    reversed.permute_batch = true;
    if (!contract(kernel, call.problem()).batch_invariant) continue;
    const HostResult other = HostCall(parse_line(line), reversed).run(kernel);
    for (int r = 0; r < 3; ++r) CHECK(std::equal(once.lse.begin() + 3 * r, once.lse.begin() + 3 * r + 3, other.lse.begin() + 3 * (2 - r)));
  }
  HostCall one_split(parse_line("decode b=3 s_q=1 h_q=3 s_kv=300 topk=200 num_splits=2"));
  CHECK(contract(find_kernel("cpu_split"), one_split.problem()).batch_invariant);
  CHECK_FALSE(contract(find_kernel("cpu_split"), HostCall(parse_line(line)).problem()).batch_invariant);
}

TEST_CASE("needle, bit for bit") {
  for (const char* line :
       {"decode b=2 s_q=1 h_q=64 s_kv=600 topk=256 values=needle", "decode b=2 s_q=1 h_q=8 s_kv=600 topk=256 values=needle num_splits=3",
        "decode b=1 s_q=2 h_q=8 s_kv=400 topk=128 values=needle pattern=duplicates q_dtype=fp16 kv_format=fp16"})
    for (const char* name : {"cpu_naive", "cpu_split", "cpu_virtual_block_table", "cpu_split+max_lazy", "cpu_split+sum_rounded"}) {
      HostCall call(parse_line(line));
      const smla_kernel& kernel = find_kernel(name);
      if (contract(kernel, call.problem()).p_max == PMax::any) continue;
      const HostResult got = call.run(kernel);
      INFO(name << "   " << line);
      for (int64_t t = 0; t < call.inputs().tokens(); ++t)
        for (int h = 0; h < call.inputs().c.h_q; ++h) {
          std::vector<uint8_t> row(static_cast<size_t>(call.inputs().row_bytes));
          kv_row(call.inputs(), needle_slot(call.inputs(), t, h), row.data());
          CHECK(std::memcmp(row.data(), &got.out[(t * call.inputs().c.h_q + h) * 512], 1024) == 0);
        }
    }
}

}  // namespace
}  // namespace smla
