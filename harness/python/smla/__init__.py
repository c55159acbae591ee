# SPDX-License-Identifier: Apache-2.0
"""smla: sparse MLA kernels written in Python, judged by the harness. harness/python/README.md tells how."""
from .errors import SmlaError
from .kernel import Call, kernel
from .runs import Result, Session, bench, check, compare, replay, run, verb
from .safetensors import load_safetensors, npz_to_safetensors, save_safetensors
from .tensor import Tensor

__all__ = ["Call", "Result", "Session", "SmlaError", "Tensor", "bench", "check", "compare", "kernel", "load_safetensors", "npz_to_safetensors", "replay", "run",
           "save_safetensors", "verb"]
