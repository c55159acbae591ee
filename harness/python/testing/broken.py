# SPDX-License-Identifier: Apache-2.0
"""Kernels with one fault each: what the tests of the Python door run."""
import ctypes
import sys
import time

import smla
from math import exp, inf, log
from operator import mul


def raises(q, kv, indices, out, lse):
    raise ValueError("a planted fault")


def exits(q, kv, indices, out, lse):
    sys.exit(3)


def wants_too_much(q, kv, indices, out, lse):
    bytearray(1 << 60)


class OutOfMemoryError(RuntimeError):
    """As torch has one."""


def wants_too_much_of_a_gpu(q, kv, indices, out, lse):
    raise OutOfMemoryError("2 GiB are wanted, 1 is free")


def segfaults(q, kv, indices, out, lse):
    ctypes.string_at(8)


def hangs(q, kv, indices, out, lse):
    time.sleep(1000)


def writes_its_input(q, kv, indices, out, lse):
    ctypes.memset(q.pointer, 1, 2)


def writes_nothing(q, kv, indices, out, lse):
    pass


def unknown_parameter(q, kv, indices, out, lse, sm_scal):
    pass


def takes_no_q(kv, indices, out):
    pass


@smla.kernel(arrays="tensor")
def ignores_sm_scale(q, kv, indices, out, lse, d_v):
    """A wrong kernel: it never multiplies by sm_scale."""
    page_size = kv.shape[1]
    for b in range(q.shape[0]):
        keys = [kv[i // page_size, i % page_size].floats() for i in indices[b, 0] if i >= 0]
        for h in range(q.shape[2]):
            weights = [exp(sum(map(mul, q[b, 0, h], key))) for key in keys]
            total = sum(weights)
            lse[b, 0, h] = log(total) if keys else -inf
            out[b, 0, h] = [sum(w / total * key[d] for w, key in zip(weights, keys)) for d in range(d_v)]


@smla.kernel(arrays="tensor", supports=lambda problem: "it declines everything")
def declines(q, kv, indices, out, lse):
    pass
