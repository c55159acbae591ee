# SPDX-License-Identifier: Apache-2.0
"""Sparse MLA in torch, vectorised over everything: a reference to develop against, on the CPU and on a GPU."""
import torch

import smla


def decoded(kv, kv_format, rope_dtype):
    """The pool [pages, page_size, ...] as fp32 rows [slots, d_qk]; unselected rows hold poison, so this gathers views and touches nothing."""
    if kv_format != "fp8_656":
        return lambda slots: kv[slots // kv.shape[1], slots % kv.shape[1]].float()
    rope_type = torch.bfloat16 if rope_dtype == "bf16" else torch.float16

    def rows(slots):
        raw = kv[slots // kv.shape[1], slots % kv.shape[1]]
        latent = E4M3.to(raw.device)[raw[..., :512].long()]
        scales = raw[..., 512:528].contiguous().view(torch.float32).repeat_interleave(128, -1)
        return torch.cat([latent * scales, raw[..., 528:].contiguous().view(rope_type).float()], -1)

    return rows


def _e4m3(code):
    exponent, fraction = code >> 3 & 15, code & 7
    magnitude = fraction * 2.0**-9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10)
    return float("nan") if code & 127 == 127 else -magnitude if code & 128 else magnitude


E4M3 = torch.tensor([_e4m3(code) for code in range(256)])


def sparse_mla(q, kv, indices, topk_length, sink, out, lse, sm_scale, d_v, kv_format, rope_dtype, num_slots):
    valid = (indices >= 0) & (indices < num_slots)
    if topk_length is not None:
        valid &= torch.arange(indices.shape[-1], device=indices.device) < topk_length[..., None]
    read = decoded(kv, kv_format, rope_dtype)
    for b in range(q.shape[0]):  # a request at a time: the gathered keys of a whole batch may not fit
        if not valid[b].any():
            out[b], lse[b] = 0, -torch.inf
            continue
        first = indices[b][valid[b]][0]  # any key that is there stands in for those that are not; its weight is 0
        keys = read(torch.where(valid[b], indices[b], first).long())
        scores = torch.einsum("shd,skd->shk", q[b].float() * sm_scale, keys).masked_fill(~valid[b][:, None], -torch.inf)
        lse[b] = torch.logsumexp(scores, -1)
        weights = torch.exp(scores - torch.where(lse[b].isfinite(), lse[b], 0.0)[..., None])
        answer = torch.einsum("shk,skd->shd", weights, keys[..., :d_v])
        if sink is not None:
            answer = answer * torch.sigmoid(lse[b] - sink)[..., None].nan_to_num(0.0)
        out[b] = answer.to(out.dtype)


FORMATS = ("bf16", "fp16", "fp8_656")
CONTRACT = {"p": "fp32"}


@smla.kernel(arrays="torch", contract=CONTRACT, kv_formats=FORMATS)
def on_cpu(q, kv, indices, topk_length, sink, out, lse, sm_scale, d_v, kv_format, rope_dtype, num_slots):
    sparse_mla(q, kv, indices, topk_length, sink, out, lse, sm_scale, d_v, kv_format, rope_dtype, num_slots)


@smla.kernel(device="cuda", arrays="torch", contract=CONTRACT, kv_formats=FORMATS)
def on_gpu(q, kv, indices, topk_length, sink, out, lse, sm_scale, d_v, kv_format, rope_dtype, num_slots):
    sparse_mla(q, kv, indices, topk_length, sink, out, lse, sm_scale, d_v, kv_format, rope_dtype, num_slots)
