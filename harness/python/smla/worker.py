# SPDX-License-Identifier: Apache-2.0
"""The process that `smla check --python` starts: loads the user's file, and serves its function through the kernel door."""
import ctypes
import errno
import importlib
import importlib.util
import os
import pathlib
import sys
import traceback

from . import _library as c
from .errors import SmlaError
from .kernel import Call, Declared, LSE_DTYPES, on_stream, split_spec

KEPT_CALLS = 8  # calls whose views are kept: a launch repeats a few times over the same memory


def last_line(error, file):
    """The traceback's last line, and where in the user's file it came from."""
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == file:
            return f"{text} ({os.path.basename(file)}:{frame.lineno} in {frame.name})"
    return text


def is_out_of_memory(error):
    """numpy's and cupy's are MemoryErrors. torch has a class of that name of its own, and none for the CPU."""
    return (isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
            or isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error))


def load_function(file, function):
    path = pathlib.Path(file).resolve()
    if not path.exists():
        raise SmlaError(f"{file} is not there")
    sys.path.insert(0, str(path.parent))  # as when the file is run
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # SystemExit too: a script without its main guard
        raise SmlaError(f"{file}: {last_line(error, str(path))}") from error
    found = module
    for part in function.split("."):
        if not hasattr(found, part):
            raise SmlaError(f"{file} has no '{function}'")
        found = getattr(found, part)
    if not callable(found):
        raise SmlaError(f"{file}: '{function}' is not a function")
    return found


class Served:
    """A declared function behind the C structs. Callbacks return what the door wants and never raise."""

    def __init__(self, declared, file):
        self.declared, self.file, self.error, self.calls = declared, str(pathlib.Path(file).resolve()), "", {}
        if declared.arrays != "tensor":
            importlib.import_module(declared.arrays)  # where it is not installed this is said before any case is asked
        self.words = c.contract_of(declared.contract)
        self.lse_dtype = (*LSE_DTYPES, "none")[self.words.lse_dtype]
        self.callbacks = (c.CONTRACT(self.contract), c.SUPPORTS(self.supports), c.WORKSPACE_BYTES(self.workspace_bytes),
                          c.CALL(self.prepare) if declared.prepare else c.CALL(0), c.CALL(self.launch), c.LAST_ERROR(self.last_error),
                          c.SPLITS_USED(self.splits_used) if declared.splits_used else c.SPLITS_USED(0))
        doc = (declared.function.__doc__ or f"{declared.function.__name__} of {os.path.basename(file)}").strip().splitlines()[0]
        self.kernel = c.Kernel(ctypes.sizeof(c.Kernel), 0 if declared.device == "cpu" else 1, declared.name.encode(), doc.encode(), None, *self.callbacks)
        self.pointers = (ctypes.POINTER(c.Kernel) * 1)(ctypes.pointer(self.kernel))
        self.library = c.Library(c.ABI_VERSION, ctypes.sizeof(c.Library), 1, 0, self.pointers)

    def guarded(self, body, failed, out_of_memory=None):
        try:
            return body()
        except BaseException as error:
            self.error = last_line(error, self.file)
            return out_of_memory if out_of_memory is not None and is_out_of_memory(error) else failed

    def contract(self, kernel, problem, out):
        def body():
            size = min(out[0].struct_size or ctypes.sizeof(c.Contract), ctypes.sizeof(c.Contract))
            ctypes.memmove(out, ctypes.byref(self.words), size)
            return 0
        return self.guarded(body, 1)

    def supports(self, kernel, problem, reason, size):
        why = self.guarded(lambda: self.declared.declines(problem[0]), "")
        if why is None:
            return 1
        c.write_text(why or f"supports: {self.error}", reason, size)
        return 0

    def workspace_bytes(self, kernel, problem):
        asked = self.declared.workspace_bytes
        return self.guarded(lambda: int(asked(problem[0])) if asked else 0, -1)

    def splits_used(self, kernel, problem):
        return self.guarded(lambda: int(self.declared.splits_used(problem[0])), 0)

    def call_of(self, problem, buffers, workspace, stream):
        key = bytes(problem[0]), bytes(buffers[0]), workspace, stream
        if key not in self.calls:
            while len(self.calls) >= KEPT_CALLS:
                del self.calls[next(iter(self.calls))]
            own = c.Problem.from_buffer_copy(problem[0])
            bytes_asked = int(self.declared.workspace_bytes(own)) if self.declared.workspace_bytes else 0
            call = Call(own, buffers[0], workspace, bytes_asked, stream, self.declared.device, self.lse_dtype, self.declared.state)
            self.calls[key] = call.as_arrays(self.declared.arrays)
        return self.calls[key]

    def invoke(self, function, names, problem, buffers, workspace, stream):
        call = self.call_of(problem, buffers, workspace, stream)
        arguments = {name: call if name == "call" else getattr(call, name) for name in names}
        if self.declared.device == "cpu":
            function(**arguments)
        else:
            with on_stream(call.stream, call.device_ordinal):
                function(**arguments)
        return 0

    def prepare(self, kernel, *arguments):
        return self.guarded(lambda: self.invoke(self.declared.prepare, self.declared.prepare_takes, *arguments), 1, -errno.ENOMEM)

    def launch(self, kernel, *arguments):
        return self.guarded(lambda: self.invoke(self.declared.function, self.declared.takes, *arguments), 1, -errno.ENOMEM)

    def last_error(self, kernel, text, size):
        c.write_text(self.error, text, size)


def main():
    words = dict(word.split("=", 1) for word in sys.argv[1:])
    spec, gpu = words["--python"], int(words.get("--gpu", -1))
    served = []

    @c.LOAD
    def load(text, size):
        try:
            file, function, ours, contract = split_spec(spec)
            served.append(Served(Declared(load_function(file, function), ours, contract), file))
            return ctypes.addressof(served[0].library)
        except BaseException as error:
            line = str(error) if isinstance(error, SmlaError) else last_line(error, "")
            c.write_text(f"--python {spec}: {line}", text, size)
            return None

    status = c.library().smla_worker(load, gpu)
    sys.stdout.flush()
    os._exit(status)  # what the user's libraries do at exit is not asked for
