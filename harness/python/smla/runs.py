# SPDX-License-Identifier: Apache-2.0
"""The program's verbs as functions. The kernel itself always runs in a worker process, which imports its file again."""
import csv
import ctypes
import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from . import _library
from .errors import SmlaError
from .kernel import Declared, words_of


def spec_of(function, contract=None, **words):
    """What `--python` calls a function: FILE.py:NAME and the words that go with it. Text is taken as it is."""
    extra = " ".join(filter(None, [*(f"{key}={value}" for key, value in words.items() if value is not None), words_of(contract)]))
    if isinstance(function, str):
        return " ".join(filter(None, [function, extra]))
    name = function.__qualname__
    if "<" in name:
        raise SmlaError(f"{name}: a worker cannot import it; a kernel stands at the top level of a file")
    Declared(function, {key: value for key, value in words.items() if value is not None})  # what is wrong with it is said here already
    return " ".join(filter(None, [f"{inspect.getsourcefile(function)}:{name}", extra]))


def flags_of(flags):
    """oracle_rows=64 is --oracle-rows=64; lists repeat the flag."""
    words = []
    for key, value in flags.items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [f"{flag}={one}" for one in (value if isinstance(value, (list, tuple)) else [value])]
    return words


class Result:
    """What came of a verb: `exit_status`, `ok` (0), `text` (what it printed), `folder` (of the reports), `rows` (of this run in accuracy.csv) and `times`
    (throughput.csv), each a dict of columns as text."""

    def __init__(self, exit_status, text):
        self.exit_status, self.text, self.ok = exit_status, text, exit_status == 0
        said = [line[len("reports: "):] for line in text.splitlines() if line.startswith("reports: ")]
        self.folder = pathlib.Path(said[-1]) if said else None
        self.rows, self.times = self._last_run("accuracy.csv"), self._last_run("throughput.csv")

    def _last_run(self, name):
        if self.folder is None or not (self.folder / name).exists():
            return []
        with open(self.folder / name, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return [row for row in rows if row["run_id"] == rows[-1]["run_id"]]

    def __repr__(self):
        return f"smla.Result(exit_status={self.exit_status}, rows={len(self.rows)}, folder={self.folder})"


def _environment():
    return {**os.environ, "SMLA_PYTHON": os.environ.get("SMLA_PYTHON") or sys.executable}


def verb(*words, quiet=False):
    """Runs `smla VERB ...`. Raises SmlaError where nothing ran (exit status 3 to 5)."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([str(_library.home() / "smla"), *map(str, words)], stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment())
        lines = []
        for line in process.stdout:
            lines.append(line)
            if not quiet:
                print(line, end="", flush=True)
        process.stdout.close()
        status = process.wait()
        errors.seek(0)
        said = errors.read().strip()
    if status in (3, 4, 5):
        raise SmlaError(said.splitlines()[-1].removeprefix("smla: ") if said else f"exit status {status}")
    if said:
        print(said, file=sys.stderr)
    return Result(status, "".join(lines))


def _run(name, function, contract, device, arrays, flags):
    spec = spec_of(function, contract, device=device, arrays=arrays)
    return verb(name, f"--python={spec}", "--progress=none", *flags_of(flags))


def check(function, *, contract=None, device=None, arrays=None, **flags):
    """`smla check` of a function or "FILE.py:NAME": suite="quick", case="decode ...", checks="all", out="DIR", any flag of `smla check --help`."""
    return _run("check", function, contract, device, arrays, flags)


def bench(function, *, contract=None, device=None, arrays=None, **flags):
    """`smla bench`: throughput of what passed the same case first."""
    return _run("bench", function, contract, device, arrays, flags)


def run(function, *, contract=None, device=None, arrays=None, **flags):
    """`smla run`: check, then bench."""
    return _run("run", function, contract, device, arrays, flags)


def compare(a, b, **flags):
    """`smla compare A B`: two reports, or two kernels of the report in_="DIR"."""
    flags = {"in" if key == "in_" else key: value for key, value in flags.items()}
    return verb("compare", a, b, *flags_of(flags))


def replay(file, **flags):
    """`smla replay FILE`: a captured call judged by the oracle."""
    return verb("replay", file, *flags_of(flags))


class Session:
    """Cases judged one at a time by workers that stay. `lines`: the cases; check(line): a list with a dict a kernel (kernel status red detail repro out
    lse). Use it as a context, or close() it: that writes the run's summary."""

    def __init__(self, function, *, contract=None, device=None, arrays=None, **flags):
        os.environ.setdefault("SMLA_PYTHON", sys.executable)
        self._lib = _library.library()
        words = [f"--python={spec_of(function, contract, device=device, arrays=arrays)}", "--progress=none", *flags_of(flags)]
        self._handle = self._lib.smla_open(len(words), (ctypes.c_char_p * len(words))(*(word.encode() for word in words)))
        if not self._handle:
            raise SmlaError(_library.error())
        self.lines = [self._lib.smla_case_line(self._handle, i).decode() for i in range(self._lib.smla_case_count(self._handle))]
        self._number = {line: i for i, line in enumerate(self.lines)}

    def check(self, line):
        if line not in self._number:
            raise SmlaError(f"not a case of this session: {line}")
        answer = self._lib.smla_check_case(self._handle, self._number[line])
        if answer is None:
            raise SmlaError(_library.error())
        return json.loads(answer)

    def close(self):
        handle, self._handle = self._handle, None
        self._lib.smla_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
