# SPDX-License-Identifier: Apache-2.0
"""libsmla.so by ctypes: the structs of kernels/api/smla_kernel.h and the functions of harness/python/smla.h."""
import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

from .errors import SmlaError

API_VERSION = 1
ABI_VERSION = 1


def _struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": [(key, kind) for kind, keys in fields for key in keys.split()]})


Problem = _struct(
    "Problem",
    (c_uint32, "abi_version struct_size"),
    (c_int32, "pass_kind b s_q h_q s_kv topk d_qk d_v page_size num_pages max_pages pad0"),
    (c_int64, "num_slots"),
    (c_int64 * 3, "q_stride_bytes"),
    (c_int64, "page_stride_bytes"),
    (c_int64 * 2, "indices_stride_bytes"),
    (c_int64, "block_table_stride_bytes"),
    (c_int64 * 3, "out_stride_bytes"),
    (c_int64 * 2, "lse_stride_bytes"),
    (c_int32, "q_dtype kv_format rope_dtype flags num_splits threads"),
    (c_float, "sm_scale"),
    (c_int32, "device_ordinal device_cc sm_count pad1"),
    (c_int64, "smem_optin_bytes l2_bytes"),
)
Buffers = _struct("Buffers", (c_uint32, "struct_size pad0"), (c_void_p, "q kv indices topk_length block_table seq_lens sink out lse"))
Contract = _struct(
    "Contract",
    (c_uint32, "struct_size"),
    (c_int32, "invalid_index padding lse_dtype lse_base empty_lse sink_in_lse duplicates q_round k_round v_round p_round"),
    (c_float, "p_scale"),
    (c_int32, "acc row_sum p_max part deterministic batch_invariant scale_exact"),
)


class Kernel(ctypes.Structure):
    pass


CONTRACT = ctypes.CFUNCTYPE(c_int, POINTER(Kernel), POINTER(Problem), POINTER(Contract))
SUPPORTS = ctypes.CFUNCTYPE(c_int, POINTER(Kernel), POINTER(Problem), c_void_p, c_uint64)
WORKSPACE_BYTES = ctypes.CFUNCTYPE(c_int64, POINTER(Kernel), POINTER(Problem))
CALL = ctypes.CFUNCTYPE(c_int, POINTER(Kernel), POINTER(Problem), POINTER(Buffers), c_void_p, c_void_p)
LAST_ERROR = ctypes.CFUNCTYPE(None, POINTER(Kernel), c_void_p, c_uint64)
SPLITS_USED = ctypes.CFUNCTYPE(c_int32, POINTER(Kernel), POINTER(Problem))
Kernel._fields_ = [
    ("struct_size", c_uint32),
    ("device", c_int32),
    ("name", c_char_p),
    ("description", c_char_p),
    ("user", c_void_p),
    ("contract", CONTRACT),
    ("supports", SUPPORTS),
    ("workspace_bytes", WORKSPACE_BYTES),
    ("prepare", CALL),
    ("launch", CALL),
    ("last_error", LAST_ERROR),
    ("splits_used", SPLITS_USED),
]


class Library(ctypes.Structure):
    _fields_ = [("abi_version", c_uint32), ("struct_size", c_uint32), ("num_kernels", c_int32), ("pad0", c_int32), ("kernels", POINTER(POINTER(Kernel)))]


LOAD = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_uint64)


def home():
    """The folder of libsmla.so and the `smla` program: $SMLA_HOME, else where this package's folder `python` stands."""
    folder = pathlib.Path(os.environ.get("SMLA_HOME") or pathlib.Path(__file__).resolve().parents[2])
    for name in ("libsmla.so", "smla"):
        if not (folder / name).exists():
            raise SmlaError(f"{folder / name} is not there: PYTHONPATH names build/<preset>/python, or SMLA_HOME a build folder")
    return folder


@functools.cache
def library():
    lib = ctypes.CDLL(str(home() / "libsmla.so"))
    for name, result, arguments in (
        ("smla_api_version", c_uint32, []),
        ("smla_error", c_char_p, []),
        ("smla_contract_of", c_int, [c_char_p, POINTER(Contract)]),
        ("smla_worker", c_int, [LOAD, c_int]),
        ("smla_open", c_void_p, [c_int, POINTER(c_char_p)]),
        ("smla_case_count", c_int64, [c_void_p]),
        ("smla_case_line", c_char_p, [c_void_p, c_int64]),
        ("smla_check_case", c_char_p, [c_void_p, c_int64]),
        ("smla_close", None, [c_void_p]),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.smla_api_version() != API_VERSION:
        raise SmlaError(f"libsmla.so has API {lib.smla_api_version()}, this module wants {API_VERSION}")
    return lib


def error():
    return library().smla_error().decode(errors="replace")


def contract_of(words):
    """The contract struct of "key=value ..." words."""
    out = Contract(struct_size=ctypes.sizeof(Contract))
    if library().smla_contract_of(words.encode(), ctypes.byref(out)) != 0:
        raise SmlaError(error())
    return out


def write_text(text, pointer, size):
    """Text into a C buffer of `size` bytes, cut to fit."""
    if size:
        raw = text.encode(errors="replace")[: size - 1] + b"\0"
        ctypes.memmove(pointer, raw, len(raw))
