# SPDX-License-Identifier: Apache-2.0
"""Captured calls as safetensors files, with the standard library alone. `smla replay FILE` is what judges them (harness/python/CAPTURES.md)."""
import json
import struct

from .errors import SmlaError
from .tensor import Tensor

_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I8": 1, "U8": 1, "I16": 2, "U16": 2, "I32": 4, "I64": 8, "F8_E4M3": 1, "BOOL": 1}
_OF_NUMPY = {"float16": "F16", "float32": "F32", "float64": "F64", "int8": "I8", "uint8": "U8", "int32": "I32", "int64": "I64", "bfloat16": "BF16"}
_OF_TORCH = {"torch." + key: value for key, value in _OF_NUMPY.items()} | {"torch.float8_e4m3fn": "F8_E4M3"}
_OF_SMLA = {"bf16": "BF16", "f16": "F16", "f32": "F32", "i32": "I32", "u8": "U8"}


def _raw(name, value):
    """dtype, shape, bytes of a numpy array, a torch tensor, a smla.Tensor, or such a triple."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, Tensor):
        rows = [b""]
        def gather(tensor):
            if len(tensor.shape) > 1:
                for i in range(len(tensor)):
                    gather(tensor[i])
            else:
                rows.append(tensor.raw())
        gather(value)
        return _OF_SMLA[value.dtype], value.shape, b"".join(rows)
    kind = str(value.dtype)
    if kind in _OF_TORCH:
        import torch
        flat = value.detach().cpu().contiguous()
        return _OF_TORCH[kind], tuple(flat.shape), flat.reshape(-1).view(torch.uint8).numpy().tobytes()
    if kind in _OF_NUMPY:
        return _OF_NUMPY[kind], value.shape, value.tobytes()
    raise SmlaError(f"{name}: dtype {kind} has no place in a capture")


def save_safetensors(path, tensors, metadata=None):
    """Writes {name: tensor} and {key: text}."""
    header, blobs, at = {}, [], 0
    if metadata:
        header["__metadata__"] = {key: str(value) for key, value in metadata.items()}
    for name, value in tensors.items():
        if value is None:
            continue
        dtype, shape, raw = _raw(name, value)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)


def load_safetensors(path):
    """({name: (dtype, shape, bytes)}, metadata)."""
    with open(path, "rb") as file:
        raw = file.read()
    if len(raw) < 8 or struct.unpack_from("<Q", raw)[0] > len(raw) - 8:
        raise SmlaError(f"{path}: its header is cut short")
    size = 8 + struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:size])
    metadata = header.pop("__metadata__", {})
    return {name: (t["dtype"], tuple(t["shape"]), raw[size + t["data_offsets"][0]:size + t["data_offsets"][1]]) for name, t in header.items()}, metadata


def npz_to_safetensors(npz, path, q_dtype="bf16", **metadata):
    """A capture from numpy's file. numpy has no bfloat16: with q_dtype="bf16" uint16 arrays q, out and a uint16 kv hold its bits. The npz's text scalars
    (sm_scale, kv_format ...) are metadata, as are the keywords."""
    import numpy
    tensors = {}
    for name, array in numpy.load(npz, allow_pickle=False).items():
        if array.ndim == 0:
            metadata.setdefault(name, str(array))
        elif array.dtype == numpy.uint16:
            tensors[name] = ("BF16" if q_dtype == "bf16" else "F16", array.shape, array.tobytes())
        else:
            tensors[name] = numpy.ascontiguousarray(array)
    save_safetensors(path, tensors, metadata)
