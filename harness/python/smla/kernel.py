# SPDX-License-Identifier: Apache-2.0
"""A Python function as a kernel: what it takes, what it declares, and how it is called."""
import functools
import inspect
import re
import sys

from .errors import SmlaError, unknown
from .tensor import Tensor

TENSORS = ("q", "kv", "indices", "topk_length", "block_table", "seq_lens", "sink", "out", "lse", "workspace")
SCALARS = ("b", "s_q", "h_q", "s_kv", "topk", "d_qk", "d_v", "page_size", "num_pages", "num_slots", "max_pages", "q_dtype", "kv_format", "rope_dtype",
           "flags", "num_splits", "threads", "sm_scale", "device_ordinal", "device_cc", "sm_count")
OTHERS = ("stream", "call")
NEEDED = ("q", "kv", "indices", "out")
DEVICES, ARRAYS = ("cpu", "cuda"), ("tensor", "numpy", "torch", "cupy")
Q_DTYPES, KV_FORMATS = ("bf16", "fp16"), ("bf16", "fp16", "fp8_656", "fp8_584", "fp8_576")
FLOATS = {"bf16": "bf16", "fp16": "f16"}
FLAG_DENSE_SET, FLAG_TABLE_PER_QUERY, FLAG_SINK, FLAG_TOPK_LENGTH = 1, 8, 64, 128
LSE_DTYPES = ("f32", "bf16")


class Call:
    """One call: tensors as attributes (None where the case has none), the numbers of the problem, `stream` (an integer), and `state`, a dict that lives
    as long as the worker."""

    def __init__(self, problem, buffers, workspace, workspace_bytes, stream, device, lse_dtype, state):
        p = problem
        for name in SCALARS:
            setattr(self, name, getattr(p, name))
        self.q_dtype, self.kv_format, self.rope_dtype = Q_DTYPES[p.q_dtype], KV_FORMATS[p.kv_format], Q_DTYPES[p.rope_dtype]
        self.stream, self.state, self.problem = stream or 0, state, problem
        where = "cpu" if device == "cpu" else f"cuda:{p.device_ordinal}"
        q_type, tokens = FLOATS[self.q_dtype], p.b * p.s_q
        row, kv_type = (int(self.kv_format[4:]), "u8") if self.kv_format.startswith("fp8") else (p.d_qk, FLOATS[self.kv_format])
        row_bytes, element = row * (1 if kv_type == "u8" else 2), (1 if kv_type == "u8" else 2)

        def tensor(pointer, shape, dtype, strides=None, writable=False):
            return Tensor(pointer, shape, dtype, strides, where, writable, self.stream) if pointer else None

        self.q = tensor(buffers.q, (p.b, p.s_q, p.h_q, p.d_qk), q_type, (*p.q_stride_bytes, 2))
        self.kv = tensor(buffers.kv, (p.num_pages, p.page_size, row), kv_type, (p.page_stride_bytes, row_bytes, element))
        self.indices = tensor(buffers.indices, (p.b, p.s_q, p.topk), "i32", (*p.indices_stride_bytes, 4))
        self.topk_length = tensor(buffers.topk_length, (p.b, p.s_q), "i32")
        rows = tokens if p.flags & FLAG_TABLE_PER_QUERY else p.b
        self.block_table = tensor(buffers.block_table, (rows, p.max_pages), "i32", (p.block_table_stride_bytes, 4))
        self.seq_lens = tensor(buffers.seq_lens, (p.b,), "i32")
        self.sink = tensor(buffers.sink, (p.h_q,), "f32")
        self.out = tensor(buffers.out, (p.b, p.s_q, p.h_q, p.d_v), q_type, (*p.out_stride_bytes, 2), True)
        self.lse = None
        if lse_dtype != "none":
            self.lse = tensor(buffers.lse, (p.b, p.s_q, p.h_q), lse_dtype, (*p.lse_stride_bytes, 4 if lse_dtype == "f32" else 2), True)
        self.workspace = tensor(workspace, (workspace_bytes,), "u8", None, True) if workspace_bytes else None

    def as_arrays(self, kind):
        """Every tensor as an array of `kind`, a view of the same memory."""
        make = {"tensor": lambda t: t, "numpy": Tensor.numpy, "torch": Tensor.torch, "cupy": _cupy}[kind]
        for name in TENSORS:
            if getattr(self, name) is not None:
                setattr(self, name, make(getattr(self, name)))
        return self


def _cupy(tensor):
    import cupy
    return cupy.asarray(tensor)


def kernel(function=None, *, device="cpu", arrays=None, contract=None, name=None, kv_formats=None, supports=None, workspace_bytes=None, prepare=None,
           splits_used=None):
    """Declares a function a kernel: `@smla.kernel` or `@smla.kernel(device="cuda", arrays="torch", contract={"lse_base": "two"})`.

    The function is called with what its parameters are named after (q kv indices topk_length block_table seq_lens sink out lse workspace, the numbers of
    the problem such as sm_scale or page_size, stream, or `call` for all of it) and fills out and lse. Without a parameter `lse` it declares
    lse_dtype=none; without `sink` or `topk_length` it declines cases that have one.

    device           "cpu" or "cuda": where the tensors are
    arrays           "tensor" (smla.Tensor), "numpy", "torch" or "cupy"; numpy on the CPU, else tensor
    contract         words of cases/README.md, "Contract", as a dict or as text
    kv_formats       the formats it reads, all if not given
    supports         f(problem) -> None, or the reason why it declines
    workspace_bytes  f(problem) -> bytes
    prepare          a function like the kernel, called once a shape before it; may allocate, results go to call.state
    splits_used      f(problem) -> int
    """
    if function is None:
        return functools.partial(kernel, device=device, arrays=arrays, contract=contract, name=name, kv_formats=kv_formats, supports=supports,
                                 workspace_bytes=workspace_bytes, prepare=prepare, splits_used=splits_used)
    function.__smla__ = dict(device=device, arrays=arrays, contract=words_of(contract), name=name, kv_formats=kv_formats, supports=supports,
                             workspace_bytes=workspace_bytes, prepare=prepare, splits_used=splits_used)
    return function


def words_of(contract):
    """A contract as text: {"lse_base": "two", "deterministic": True} is "lse_base=two deterministic=yes"."""
    if contract is None or isinstance(contract, str):
        return contract or ""
    plain = {True: "yes", False: "no"}
    return " ".join(f"{key}={plain.get(value, value) if isinstance(value, bool) else value}" for key, value in contract.items())


def split_spec(spec):
    """"FILE.py:FUNCTION key=value ..." -> file, function, words of ours, words of the contract. The words replace what the decorator said."""
    match = re.fullmatch(r"(.+\.py):([\w.]+)((?:\s+\S+)*)\s*", spec)
    if not match:
        raise SmlaError(f"'{spec}' is not FILE.py:FUNCTION, with key=value words behind it if you like")
    ours, contract = {}, []
    for word in match[3].split():
        key, equals, value = word.partition("=")
        if not equals:
            raise SmlaError(f"'{word}' is not key=value")
        if key in ("device", "arrays", "name"):
            ours[key] = value
        else:
            contract.append(word)
    return match[1], match[2], ours, " ".join(contract)


def parameters(function):
    """The names that a kernel is called with."""
    known = TENSORS + SCALARS + OTHERS
    names = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise SmlaError(f"{function.__name__}: '{parameter}' cannot be filled: parameters are named after what a kernel is given")
        if parameter.name in known:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            raise unknown(f"{function.__name__}: parameter", parameter.name, known)
    return names


class Declared:
    """A function with everything that was declared of it, complete and checked."""

    def __init__(self, function, words=None, contract=""):
        said = {**dict(device="cpu", arrays=None, contract="", name=None, kv_formats=None, supports=None, workspace_bytes=None, prepare=None,
                       splits_used=None), **getattr(function, "__smla__", {}), **(words or {})}
        self.function, self.supports, self.workspace_bytes, self.prepare = function, said["supports"], said["workspace_bytes"], said["prepare"]
        self.splits_used = said["splits_used"]
        self.device, self.arrays = said["device"], said["arrays"]
        if self.device not in DEVICES:
            raise unknown("device", self.device, DEVICES)
        if self.arrays is None:
            self.arrays = "numpy" if self.device == "cpu" else "tensor"
        if self.arrays not in ARRAYS:
            raise unknown("arrays", self.arrays, ARRAYS)
        for kv_format in said["kv_formats"] or ():
            if kv_format not in KV_FORMATS:
                raise unknown("kv_formats", kv_format, KV_FORMATS)
        self.kv_formats = tuple(said["kv_formats"] or KV_FORMATS)
        self.takes = parameters(function)
        self.prepare_takes = parameters(self.prepare) if self.prepare else []
        self.takes_all = "call" in self.takes
        if not self.takes_all:
            for needed in NEEDED:
                if needed not in self.takes:
                    raise SmlaError(f"{function.__name__}: takes no '{needed}'")
        self.name = said["name"] or re.sub(r"[^a-z0-9_.+-]", "_", function.__name__.lower())
        has_lse = self.takes_all or "lse" in self.takes
        self.contract = " ".join(words for words in ("" if has_lse else "lse_dtype=none", said["contract"], contract) if words)
        self.state = {}

    def declines(self, problem):
        """None, or why this problem is not for it."""
        if KV_FORMATS[problem.kv_format] not in self.kv_formats:
            return f"kv_format={KV_FORMATS[problem.kv_format]}: it reads {', '.join(self.kv_formats)}"
        for flag, parameter in ((FLAG_SINK, "sink"), (FLAG_TOPK_LENGTH, "topk_length")):
            if problem.flags & flag and not (self.takes_all or parameter in self.takes):
                return f"takes no {parameter}"
        return self.supports(problem) if self.supports else None


def on_stream(stream, device_ordinal):
    """What torch and cupy launch inside of it goes to `stream`. Only those that are imported already are told."""
    import contextlib
    stack = contextlib.ExitStack()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_available():
        stack.enter_context(torch.cuda.device(device_ordinal))
        stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream()))
    if cupy is not None and stream:
        stack.enter_context(cupy.cuda.ExternalStream(stream))
    return stack
