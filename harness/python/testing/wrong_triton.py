# SPDX-License-Identifier: Apache-2.0
"""The Triton example with one planted defect: it drops what a list has beyond whole tiles of 64."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
import smla
import triton_sparse


@smla.kernel(device="cuda", arrays="torch", kv_formats=("bf16", "fp16"))
def drops_the_last_tile(q, kv, indices, topk_length, sink, out, lse, sm_scale, num_slots):
    """Triton, wrong: whole tiles of 64 only"""
    triton_sparse.launch(q, kv, indices, topk_length, sink, out, lse, sm_scale, indices.shape[2] // 64 * 64, num_slots)
