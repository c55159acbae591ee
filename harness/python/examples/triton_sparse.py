# SPDX-License-Identifier: Apache-2.0
"""Sparse MLA in Triton: a program a query token and 16 heads, one pass over the list with an online softmax.

   smla run --python harness/python/examples/triton_sparse.py:triton_sparse
"""
import torch
import triton
import triton.language as tl

import smla

BLOCK_H, BLOCK_N = 16, 32


# One compilation a dtype and model, not one for each odd size; strides stay specialised, since vector loads need them to be multiples of 16.
@triton.jit(do_not_specialize=["s_q", "h_q", "topk", "num_slots", "page_size", "i_b", "i_s", "l_b", "l_s"])
def _sparse_mla(q, kv, indices, topk_length, sink, out, lse, scale_log2, s_q, h_q, topk, num_slots, page_size, page_stride, q_b, q_s, q_h, i_b, i_s,
                o_b, o_s, o_h, l_b, l_s, ROPE: tl.constexpr, LENGTH: tl.constexpr, SINK: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr):
    token, heads = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    b, s = token // s_q, token % s_q
    is_head = heads < h_q
    latent, rope = tl.arange(0, 512), 512 + tl.arange(0, 64)
    q_row = q + b * q_b + s * q_s + heads[:, None] * q_h
    q_latent = tl.load(q_row + latent[None, :], mask=is_head[:, None], other=0.0)
    if ROPE:
        q_rope = tl.load(q_row + rope[None, :], mask=is_head[:, None], other=0.0)
    row_width: tl.constexpr = 576 if ROPE else 512

    keys = topk
    if LENGTH:
        keys = tl.minimum(tl.maximum(tl.load(topk_length + token), 0), topk)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, 512], tl.float32)
    for first in range(0, keys, BLOCK_N):
        entry = first + tl.arange(0, BLOCK_N)
        slot = tl.load(indices + b * i_b + s * i_s + entry, mask=entry < keys, other=-1)
        valid = (slot >= 0) & (slot < num_slots)
        slot = tl.where(valid, slot, 0).to(tl.int64)  # an address for lanes that load nothing
        row = kv + (slot // page_size) * page_stride + (slot % page_size) * row_width
        k = tl.load(row[:, None] + latent[None, :], mask=valid[:, None], other=0.0)
        scores = tl.dot(q_latent, tl.trans(k))
        if ROPE:
            k_rope = tl.load(row[:, None] + rope[None, :], mask=valid[:, None], other=0.0)
            scores += tl.dot(q_rope, tl.trans(k_rope))
        scores = tl.where(valid[None, :], scores * scale_log2, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)  # nothing valid so far
        p = tl.exp2(scores - base[:, None])
        keep = tl.exp2(top - base)
        total = total * keep + tl.sum(p, 1)
        acc = acc * keep[:, None] + tl.dot(p.to(k.dtype), k)
        top = new_top

    is_empty = total == 0
    log_sum = tl.where(is_empty, float("-inf"), (top + tl.log2(tl.where(is_empty, 1.0, total))) * 0.6931471805599453)
    share = tl.where(is_empty, 0.0, 1.0 / tl.where(is_empty, 1.0, total))
    if SINK:
        share = tl.where(is_empty, 0.0, share / (1.0 + tl.exp(tl.load(sink + heads, mask=is_head, other=0.0) - log_sum)))
    tl.store(out + b * o_b + s * o_s + heads[:, None] * o_h + latent[None, :], (acc * share[:, None]).to(out.dtype.element_ty), mask=is_head[:, None])
    tl.store(lse + b * l_b + s * l_s + heads, log_sum, mask=is_head)


def launch(q, kv, indices, topk_length, sink, out, lse, sm_scale, topk, num_slots):
    b, s_q, h_q, d_qk = q.shape
    grid = (b * s_q, triton.cdiv(h_q, BLOCK_H))
    _sparse_mla[grid](q, kv, indices, topk_length, sink, out, lse, sm_scale * 1.4426950408889634, s_q, h_q, topk, num_slots, kv.shape[1], kv.stride(0),
                      *q.stride()[:3], *indices.stride()[:2], *out.stride()[:3], *lse.stride()[:2], ROPE=d_qk == 576, LENGTH=topk_length is not None,
                      SINK=sink is not None, BLOCK_H=BLOCK_H, BLOCK_N=BLOCK_N, num_warps=4, num_stages=2)


@smla.kernel(device="cuda", arrays="torch", kv_formats=("bf16", "fp16"), contract={"deterministic": True})
def triton_sparse(q, kv, indices, topk_length, sink, out, lse, sm_scale, num_slots):
    """Triton: one pass over the list, 16 heads a program"""
    launch(q, kv, indices, topk_length, sink, out, lse, sm_scale, indices.shape[2], num_slots)
