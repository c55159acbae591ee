# SPDX-License-Identifier: Apache-2.0
"""vLLM's Triton decode kernel with pages of one row: its table of pages is the list of indices, holes closed. By the arguments of its function; read as
documentation; runs where the library is installed:

   smla run --python harness/python/adapters/vllm_triton.py:sparse_decode

The kernel wants at least one key in each list; an empty one is answered here.
"""
import torch
from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

import smla

SPLITS = 4


def _declines(problem):
    if problem.page_stride_bytes != problem.page_size * 2 * problem.d_qk:
        return "page_stride_rows: a page of one row needs rows at one stride"
    return None


@smla.kernel(device="cuda", arrays="torch", kv_formats=["bf16", "fp16"], supports=_declines)
def sparse_decode(q, kv, indices, topk_length, out, lse, call):
    """vLLM Triton decode, pages of one row"""
    lists = indices.reshape(-1, call.topk)
    valid = (lists >= 0) & (lists < call.num_slots)
    if topk_length is not None:
        valid &= torch.arange(call.topk, device=q.device) < topk_length.reshape(-1, 1)
    order = torch.argsort(~valid, dim=1, stable=True)
    table, lengths = torch.gather(lists, 1, order).clamp(0, call.num_slots - 1), valid.sum(1, dtype=torch.int32)
    tokens, rows = lists.shape[0], kv.view(-1, 1, call.d_qk)
    answer = torch.empty(tokens, call.h_q, call.d_v, dtype=q.dtype, device=q.device)
    log_sum = torch.empty(tokens, call.h_q, dtype=torch.float32, device=q.device)
    partial = torch.empty(tokens, call.h_q, SPLITS, call.d_v + 1, dtype=torch.float32, device=q.device)
    decode_attention_fwd(
        q.reshape(tokens, call.h_q, call.d_qk), rows, rows[..., : call.d_v], answer, log_sum,
        table, lengths,                                        # req_to_token, b_seq_len: a query token is a request
        partial, SPLITS, call.sm_scale, 1)                     # page_size = 1
    empty = (lengths == 0)[:, None]
    out.copy_(answer.masked_fill(empty[..., None], 0).view(out.shape))
    lse.copy_(log_sum.masked_fill(empty, -torch.inf).view(lse.shape))
