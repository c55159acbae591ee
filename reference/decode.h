// SPDX-License-Identifier: Apache-2.0
// The reference's own reading of cached bytes, spelled from the formats' texts; it shares no code with the encoder or with any kernel.
#pragma once
#include <array>
#include <cstdint>

#include "cases/inputs.h"

namespace smla {

/// OCP FP8 E4M3: S.EEEE.MMM, bias 7, no infinities; S.1111.111 is NaN. Largest 448, smallest normal 2^-6, smallest subnormal 2^-9.
extern const std::array<double, 256> kE4m3;

/// 16-bit values. bf16: the upper half of an fp32. fp16: S.EEEEE.MMMMMMMMMM, bias 15, subnormals, inf and NaN.
double decode_bf16(uint16_t bits);
double decode_fp16(uint16_t bits);
inline double decode16(uint16_t bits, FloatType type) { return type == FloatType::bf16 ? decode_bf16(bits) : decode_fp16(bits); }
void decode16(const uint16_t* bits, FloatType type, int64_t n, double* values);

/// One cached token's row as d_qk values, exactly: fp8_656 is code * scale for the latent, the RoPE part is stored in rope_dtype.
/// Throws UsageError for a format that is not judged yet.
void decode_row(const Case& c, const uint8_t* row, double* values);

}  // namespace smla
