# SPDX-License-Identifier: Apache-2.0
"""A dense paged kernel made sparse without touching it: each chosen key is a page of one row, and the index list, its holes closed, is the page table.

   smla run --python harness/python/examples/triton_virtual_table.py:triton_virtual_table
"""
import torch
import triton
import triton.language as tl

import smla

BLOCK_H, BLOCK_N = 16, 32


@triton.jit(do_not_specialize=["s_q", "h_q", "width", "l_b", "l_s"])
def _dense_paged(q, kv, table, lengths, out, lse, scale_log2, s_q, h_q, width, page_size: tl.constexpr, q_b, q_s, q_h, o_b, o_s, o_h, l_b, l_s,
                 ROPE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr):
    """Row t of `table` names the pages of query token t, whose first lengths[t] positions it attends."""
    token, heads = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    b, s = token // s_q, token % s_q
    is_head = heads < h_q
    latent, rope = tl.arange(0, 512), 512 + tl.arange(0, 64)
    row_width: tl.constexpr = 576 if ROPE else 512
    q_row = q + b * q_b + s * q_s + heads[:, None] * q_h
    q_latent = tl.load(q_row + latent[None, :], mask=is_head[:, None], other=0.0)
    if ROPE:
        q_rope = tl.load(q_row + rope[None, :], mask=is_head[:, None], other=0.0)
    length = tl.load(lengths + token)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, 512], tl.float32)
    for first in range(0, length, BLOCK_N):
        position = first + tl.arange(0, BLOCK_N)
        inside = position < length
        page = tl.load(table + token * width + position // page_size, mask=inside, other=0).to(tl.int64)
        row = kv + (page * page_size + position % page_size) * row_width
        k = tl.load(row[:, None] + latent[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(q_latent, tl.trans(k))
        if ROPE:
            scores += tl.dot(q_rope, tl.trans(tl.load(row[:, None] + rope[None, :], mask=inside[:, None], other=0.0)))
        scores = tl.where(inside[None, :], scores * scale_log2, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))  # a tile holds at least one position, so this is finite
        p, keep = tl.exp2(scores - new_top[:, None]), tl.exp2(top - new_top)
        total = total * keep + tl.sum(p, 1)
        acc = acc * keep[:, None] + tl.dot(p.to(k.dtype), k)
        top = new_top
    is_empty = length == 0
    share = tl.where(is_empty, 0.0, 1.0 / tl.where(is_empty, 1.0, total))
    tl.store(out + b * o_b + s * o_s + heads[:, None] * o_h + latent[None, :], (acc * share[:, None]).to(out.dtype.element_ty), mask=is_head[:, None])
    log_sum = (top + tl.log2(tl.where(is_empty, 1.0, total))) * 0.6931471805599453
    tl.store(lse + b * l_b + s * l_s + heads, tl.where(is_empty, float("-inf"), log_sum), mask=is_head)


@triton.jit(do_not_specialize=["s_q", "topk", "num_slots", "i_b", "i_s"])
def _close_holes(indices, topk_length, table, lengths, s_q, topk, num_slots, i_b, i_s, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    """The valid entries of each list to the front, in their order."""
    token = tl.program_id(0).to(tl.int64)
    entry = tl.arange(0, BLOCK)
    slot = tl.load(indices + token // s_q * i_b + token % s_q * i_s + entry, mask=entry < topk, other=-1)
    valid = (slot >= 0) & (slot < num_slots)
    if LENGTH:
        valid &= entry < tl.load(topk_length + token)
    place = tl.cumsum(valid.to(tl.int32), 0) - 1
    tl.store(table + token * topk + place, slot, mask=valid)
    tl.store(lengths + token, tl.sum(valid.to(tl.int32), 0))


def declines(problem):
    row_bytes = 2 * problem.d_qk
    return None if problem.page_stride_bytes == problem.page_size * row_bytes else "page_stride_rows: a page of one row needs rows at one stride"


@smla.kernel(device="cuda", arrays="torch", kv_formats=("bf16", "fp16"), supports=declines, contract={"deterministic": True},
             workspace_bytes=lambda problem: 4 * problem.b * problem.s_q * (problem.topk + 1))
def triton_virtual_table(q, kv, indices, topk_length, out, lse, workspace, sm_scale, num_slots):
    """Triton: a dense paged kernel over a table of one-row pages"""
    b, s_q, h_q, d_qk = q.shape
    tokens, topk = b * s_q, indices.shape[2]
    space = workspace.view(torch.int32)
    table, lengths = space[: tokens * topk], space[tokens * topk : tokens * (topk + 1)]
    _close_holes[(tokens,)](indices, topk_length, table, lengths, s_q, topk, num_slots, *indices.stride()[:2], LENGTH=topk_length is not None,
                            BLOCK=triton.next_power_of_2(topk))
    _dense_paged[(tokens, triton.cdiv(h_q, BLOCK_H))](q, kv, table, lengths, out, lse, sm_scale * 1.4426950408889634, s_q, h_q, topk, 1, *q.stride()[:3],
                                                      *out.stride()[:3], *lse.stride()[:2], ROPE=d_qk == 576, BLOCK_H=BLOCK_H, BLOCK_N=BLOCK_N,
                                                      num_warps=4, num_stages=2)
