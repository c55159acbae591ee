# SPDX-License-Identifier: Apache-2.0
"""Sparse MLA with nothing but the standard library: slow, and short enough to be read. Small cases only."""
from math import exp, inf, log
from operator import mul

import smla


@smla.kernel(arrays="tensor", kv_formats=("bf16", "fp16"), contract={"deterministic": True})
def plain(q, kv, indices, topk_length, sink, out, lse, sm_scale, d_v):
    pages, page_size, _ = kv.shape
    for b, s, h in ((b, s, h) for b in range(q.shape[0]) for s in range(q.shape[1]) for h in range(q.shape[2])):
        chosen = list(indices[b, s])[: topk_length[b, s] if topk_length else None]
        keys = [kv[i // page_size, i % page_size].floats() for i in chosen if 0 <= i < pages * page_size]
        scores = [sm_scale * sum(map(mul, q[b, s, h], key)) for key in keys]
        top = max(scores, default=-inf)
        total = sum(exp(x - top) for x in scores)
        lse[b, s, h] = top + log(total) if keys else -inf
        share = 1 / (1 + exp(sink[h] - lse[b, s, h])) if sink and keys and sink[h] < inf else float(not sink)
        weights = [exp(x - top) / total * share for x in scores]
        out[b, s, h] = [sum(w * key[d] for w, key in zip(weights, keys)) for d in range(d_v)]
