# SPDX-License-Identifier: Apache-2.0
"""FlashMLA's sparse kernels (package flash_mla), by the arguments of its public interface. Read as documentation; runs where the library is installed:

   smla run --python harness/python/adapters/flashmla.py:sparse_decode
   smla run --python harness/python/adapters/flashmla.py:sparse_prefill

What it declares, and why:
   invalid_index=minus_one   decode: exactly -1 is no key. Prefill checks the range, any_outside
   empty_lse=pos_inf         an empty row has lse +inf (and out 0)
   k=bf16 v=bf16             the FP8 cache is converted to bf16 before the products, scales included
"""
import torch
from flash_mla import flash_mla_sparse_fwd, flash_mla_with_kvcache, get_mla_metadata

import smla


def _declines(problem):
    if problem.h_q not in (64, 128):
        return f"h_q={problem.h_q}: FlashMLA takes 64 or 128 heads"
    if problem.topk % 64:
        return f"topk={problem.topk}: FlashMLA takes multiples of 64"
    if problem.q_dtype != 0:
        return "q_dtype: FlashMLA takes bf16"
    return None


def _plan(call):
    call.state["plan"] = get_mla_metadata()[0]  # filled by the first call with it, reused by the others of the shape


@smla.kernel(device="cuda", arrays="torch", kv_formats=["fp8_656"], supports=_declines, prepare=_plan,
             contract="invalid_index=minus_one empty_lse=pos_inf k=bf16 v=bf16")
def sparse_decode(call):
    """FlashMLA sparse decode, FP8 cache"""
    pages, page_size, row = call.kv.shape
    length = None
    if call.topk_length is not None:
        if call.s_q != 1:
            raise NotImplementedError("FlashMLA has one topk_length a request, the case one a query")
        length = call.topk_length[:, 0]
    out, lse = flash_mla_with_kvcache(
        q=call.q,                                              # [b][s_q][h_q][d_qk], strides may exceed the shape
        k_cache=call.kv.view(pages, page_size, 1, row),        # 656 bytes a token, as uint8
        block_table=None, cache_seqlens=None,                  # only for dense attention
        head_dim_v=call.d_v,
        tile_scheduler_metadata=call.state["plan"], num_splits=None,
        softmax_scale=call.sm_scale, causal=False, is_fp8_kvcache=True,
        indices=call.indices,                                  # [b][s_q][topk], physical slots: page * page_size + offset
        attn_sink=call.sink, topk_length=length)
    call.out.copy_(out)
    call.lse.copy_(lse.transpose(1, 2))                        # FlashMLA: [b][h_q][s_q]


@smla.kernel(device="cuda", arrays="torch", kv_formats=["bf16"], supports=_declines, contract="empty_lse=pos_inf")
def sparse_prefill(call):
    """FlashMLA sparse prefill, bf16 cache"""
    out, _, lse = flash_mla_sparse_fwd(
        q=call.q.reshape(-1, call.h_q, call.d_qk),             # all query tokens in one list
        kv=call.kv.reshape(-1, 1, call.d_qk),                  # all slots in one list: a padded page stride is copied here
        indices=call.indices.reshape(-1, 1, call.topk),
        sm_scale=call.sm_scale, d_v=call.d_v, attn_sink=call.sink,
        topk_length=None if call.topk_length is None else call.topk_length.reshape(-1))
    call.out.copy_(out.view(call.out.shape))
    call.lse.copy_(lse.view(call.lse.shape))
