# SPDX-License-Identifier: Apache-2.0
"""Memory of the harness as an array that every Python library understands, without copying and without needing any of them."""
import ctypes
import struct
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p


class DType:
    def __init__(self, name, typestr, code, bits, unpack):
        self.name, self.typestr, self.dlpack, self.bits, self.unpack = name, typestr, (code, bits), bits, unpack
        self.bytes = bits // 8


# numpy and __cuda_array_interface__ have no bfloat16: there its 16 bits appear as uint16. DLPack has it (code 4).
DTYPES = {d.name: d for d in (
    DType("bf16", "<u2", 4, 16, "H"), DType("f16", "<f2", 2, 16, "e"), DType("f32", "<f4", 2, 32, "f"), DType("f64", "<f8", 2, 64, "d"),
    DType("i32", "<i4", 0, 32, "i"), DType("i64", "<i8", 0, 64, "q"), DType("u8", "|u1", 1, 8, "B"))}


def bf16_of(value):
    """The bits of a float rounded to bfloat16, to nearest even; NaN stays NaN."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if value != value:
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


class Tensor:
    """`shape` and `dtype` ("bf16" "f16" "f32" "i32" "u8" ...) of memory at `pointer`; `strides` in BYTES; `device`: "cpu" or "cuda:N".

    numpy.asarray(t), torch.from_dlpack(t), cupy.from_dlpack(t) are views, as are t.numpy() and t.torch(). On the CPU t[i, j] is a smaller view, or one
    element where no dimension is left; t[i] = numbers writes; t.floats() reads."""

    def __init__(self, pointer, shape, dtype, strides=None, device="cpu", writable=False, stream=0):
        self.pointer, self.shape, self.dtype, self.device, self.writable, self.stream = pointer or 0, tuple(shape), dtype, device, writable, stream
        if strides is None:
            strides, step = [], DTYPES[dtype].bytes
            for n in reversed(self.shape):
                strides.insert(0, step)
                step *= n
        self.strides = tuple(strides)

    def __repr__(self):
        return f"smla.Tensor({self.dtype}, shape={self.shape}, strides={self.strides}, {self.device})"

    def __len__(self):
        return self.shape[0]

    # ---- other libraries

    def _interface(self):
        return {"version": 3, "shape": self.shape, "typestr": DTYPES[self.dtype].typestr, "data": (self.pointer, not self.writable), "strides": self.strides}

    @property
    def __array_interface__(self):
        if self.device != "cpu":
            raise AttributeError("__array_interface__: this memory is on the GPU")
        return self._interface()

    @property
    def __cuda_array_interface__(self):
        if self.device == "cpu":
            raise AttributeError("__cuda_array_interface__: this memory is on the CPU")
        return {**self._interface(), "stream": self.stream or 1}

    def __dlpack_device__(self):
        return (1, 0) if self.device == "cpu" else (2, int(self.device.split(":")[1]))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A view. Its consumer is taken to work on the stream that the call was given, so nothing is waited for."""
        return _capsule(self)

    def numpy(self):
        import numpy
        return numpy.asarray(self)

    def torch(self):
        import torch
        return torch.from_dlpack(self)

    # ---- by hand, on the CPU

    def __getitem__(self, index):
        view = self._view(index)
        return view if view.shape else view.floats()[0]

    def __setitem__(self, index, values):
        view = self._view(index)
        view._write(values if view.shape else [values])

    def floats(self):
        """The elements of a vector or scalar as Python numbers."""
        kind = DTYPES[self.dtype]
        n, stride = self._vector()
        if stride == kind.bytes:
            numbers = struct.unpack(f"<{n}{kind.unpack}", ctypes.string_at(self.pointer, n * kind.bytes))
        else:
            numbers = [struct.unpack("<" + kind.unpack, ctypes.string_at(self.pointer + i * stride, kind.bytes))[0] for i in range(n)]
        return [bf16_value(bits) for bits in numbers] if self.dtype == "bf16" else list(numbers)

    def raw(self):
        """The bytes of a vector or scalar."""
        size = DTYPES[self.dtype].bytes
        n, stride = self._vector()
        return b"".join(ctypes.string_at(self.pointer + i * stride, size) for i in range(n)) if stride != size else ctypes.string_at(self.pointer, n * size)

    def __iter__(self):
        return iter(self.floats()) if len(self.shape) == 1 else (self[i] for i in range(len(self)))

    def _view(self, index):
        index = index if isinstance(index, tuple) else (index,)
        if len(index) > len(self.shape):
            raise IndexError(f"{len(index)} indices into {len(self.shape)} dimensions")
        at = self.pointer
        for i, n, stride in zip(index, self.shape, self.strides):
            if not -n <= i < n:
                raise IndexError(f"index {i} is outside of [0, {n})")
            at += i % n * stride
        return Tensor(at, self.shape[len(index):], self.dtype, self.strides[len(index):], self.device, self.writable, self.stream)

    def _vector(self):
        """Its length and stride; a scalar is a vector of one."""
        if self.device != "cpu":
            raise TypeError("elements on the GPU are read through torch or cupy")
        if len(self.shape) > 1:
            raise TypeError(f"a vector is wanted, this has shape {self.shape}")
        return (self.shape[0], self.strides[0]) if self.shape else (1, DTYPES[self.dtype].bytes)

    def _write(self, values):
        kind, values = DTYPES[self.dtype], list(values)
        n, stride = self._vector()
        if not self.writable:
            raise TypeError("an input is not to be written")
        if len(values) != n:
            raise ValueError(f"{len(values)} values for {n} elements")
        numbers = [bf16_of(v) for v in values] if self.dtype == "bf16" else values
        if stride == kind.bytes:
            ctypes.memmove(self.pointer, struct.pack(f"<{n}{kind.unpack}", *numbers), n * kind.bytes)
        else:
            for i, number in enumerate(numbers):
                ctypes.memmove(self.pointer + i * stride, struct.pack("<" + kind.unpack, number), kind.bytes)


# ---- DLPack, after its C header: a DLManagedTensor in a capsule named "dltensor".


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8),
                ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _DLManagedTensor(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, c_void_p)
_DLManagedTensor._fields_ = [("dl_tensor", _DLTensor), ("manager_ctx", c_void_p), ("deleter", _DELETER)]
_live = {}  # address of the managed tensor -> what must outlive its consumer

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.restype, _is_capsule.argtypes = ctypes.c_int, [c_void_p, c_char_p]
_of_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_of_capsule.restype, _of_capsule.argtypes = c_void_p, [c_void_p, c_char_p]


@_DELETER
def _delete(address):
    _live.pop(address, None)


@ctypes.PYFUNCTYPE(None, c_void_p)
def _drop(capsule):
    if _is_capsule(capsule, b"dltensor"):  # else somebody consumed it, and calls the deleter
        _live.pop(_of_capsule(capsule, b"dltensor"), None)


def _capsule(tensor):
    size = DTYPES[tensor.dtype].bytes
    if any(stride % size for stride in tensor.strides):
        raise BufferError(f"{tensor!r}: its strides are no multiple of its element")
    n = len(tensor.shape)
    shape, strides = (c_int64 * n)(*tensor.shape), (c_int64 * n)(*(stride // size for stride in tensor.strides))
    device_type, device_id = tensor.__dlpack_device__()
    code, bits = DTYPES[tensor.dtype].dlpack
    managed = _DLManagedTensor(_DLTensor(tensor.pointer, device_type, device_id, n, code, bits, 1, shape, strides, 0), None, _delete)
    address = ctypes.addressof(managed)
    _live[address] = managed, shape, strides, tensor
    return _new_capsule(address, b"dltensor", ctypes.cast(_drop, c_void_p))
