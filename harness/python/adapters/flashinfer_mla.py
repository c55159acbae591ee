# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's paged MLA wrapper with pages of one row: its page lists are the index lists. By the arguments of its public interface; read as
documentation; runs where the library is installed:

   smla run --python harness/python/adapters/flashinfer_mla.py:sparse_decode

What it declares, and why:
   lse_base=two              it returns log2 of the sum
Planning copies lengths to the host, so it stands in prepare. A list without any key is declined by the wrapper's own checks in some versions.
"""
import flashinfer
import torch

import smla


def _declines(problem):
    if problem.d_qk != 576:
        return f"d_qk={problem.d_qk}: the wrapper wants 512 latent and 64 RoPE values"
    if problem.page_stride_bytes != problem.page_size * 2 * problem.d_qk:
        return "page_stride_rows: a page of one row needs rows at one stride"
    return None


def _plan(call):
    wrapper = call.state.setdefault("wrapper", flashinfer.mla.BatchMLAPagedAttentionWrapper(
        torch.empty(128 << 20, dtype=torch.uint8, device="cuda"), backend="auto"))
    lists = call.indices.reshape(-1, call.topk)
    valid = (lists >= 0) & (lists < call.num_slots)
    if call.topk_length is not None:
        valid &= torch.arange(call.topk, device="cuda") < call.topk_length.reshape(-1, 1)
    lengths = valid.sum(1, dtype=torch.int32)
    ends = torch.cumsum(lengths, 0, dtype=torch.int32)
    tokens = lists.shape[0]
    wrapper.plan(
        qo_indptr=torch.arange(tokens + 1, dtype=torch.int32, device="cuda"),            # every query token is a request of its own
        kv_indptr=torch.cat([torch.zeros_like(ends[:1]), ends]),
        kv_indices=lists[valid],                                                         # pages of one row = slots, holes closed
        kv_len_arr=lengths,
        num_heads=call.h_q, head_dim_ckv=512, head_dim_kpe=64, page_size=1, causal=False, sm_scale=call.sm_scale,
        q_data_type=call.q.dtype, kv_data_type=call.kv.dtype)


@smla.kernel(device="cuda", arrays="torch", kv_formats=["bf16", "fp16"], supports=_declines, prepare=_plan, contract="lse_base=two")
def sparse_decode(q, kv, indices, topk_length, out, lse, call):
    """FlashInfer paged MLA, pages of one row"""
    rows, queries = kv.view(-1, 1, 576), q.reshape(-1, q.shape[2], 576)
    answer, log2_sum = call.state["wrapper"].run(queries[..., :512], queries[..., 512:], rows[..., :512], rows[..., 512:], return_lse=True)
    out.copy_(answer.view(out.shape))
    lse.copy_(log2_sum.view(lse.shape))
