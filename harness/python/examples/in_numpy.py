# SPDX-License-Identifier: Apache-2.0
"""Sparse MLA in numpy, one query token at a time, in double precision."""
import numpy as np

import smla


def decoded(rows, kv_format, rope_dtype):
    """Cached rows as d_qk doubles. kv_format fp8_656: 512 codes, 4 scales of 128 codes each, 64 values of rope_dtype."""
    if kv_format != "fp8_656":
        return float16_or_bf16(rows, kv_format)
    codes, scales, rope = rows[:, :512], rows[:, 512:528].copy().view("<f4"), rows[:, 528:].copy().view("<u2")
    latent = E4M3[codes] * np.repeat(scales.astype(float), 128, axis=1)
    return np.concatenate([latent, float16_or_bf16(rope, rope_dtype)], axis=1)


def float16_or_bf16(values, dtype):
    if dtype == "fp16":
        return values.view(np.float16).astype(float)
    return (values.astype(np.uint32) << 16).view(np.float32).astype(float)


def rounded(values, dtype):
    """Doubles as 16-bit values, bf16 as the uint16 that numpy sees."""
    if dtype == "fp16":
        return values.astype(np.float16)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _e4m3(code):
    exponent, fraction = code >> 3 & 15, code & 7
    magnitude = fraction * 2.0**-9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10)
    return np.nan if code & 127 == 127 else -magnitude if code & 128 else magnitude


E4M3 = np.array([_e4m3(code) for code in range(256)])


@smla.kernel(contract={"deterministic": True}, kv_formats=("bf16", "fp16", "fp8_656"))
def in_numpy(q, kv, indices, topk_length, sink, out, lse, sm_scale, d_v, q_dtype, kv_format, rope_dtype):
    pages, page_size, _ = kv.shape
    for b, s in np.ndindex(q.shape[:2]):
        chosen = indices[b, s] if topk_length is None else indices[b, s, : max(0, topk_length[b, s])]
        chosen = chosen[(chosen >= 0) & (chosen < pages * page_size)]
        if len(chosen) == 0:
            out[b, s], lse[b, s] = 0, -np.inf
            continue
        keys = decoded(kv[chosen // page_size, chosen % page_size], kv_format, rope_dtype)
        scores = sm_scale * float16_or_bf16(q[b, s], q_dtype) @ keys.T
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=1, keepdims=True)
        lse[b, s] = (top + np.log(total))[:, 0]
        answer = weights / total @ keys[:, :d_v]
        if sink is not None:
            with np.errstate(over="ignore"):
                answer /= 1 + np.exp(sink - lse[b, s].astype(float))[:, None]
        out[b, s] = rounded(answer, q_dtype)
