# SPDX-License-Identifier: Apache-2.0
"""The Python door, through the built program and libsmla.so. With the standard library alone; what needs numpy or pytest is skipped where they are not.

   python_test.py BUILD_FOLDER
"""
import ctypes
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path.cwd()
HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
sys.path.insert(0, str(BUILD / "python"))
sys.path.insert(0, str(EXAMPLES))
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
os.environ["SMLA_PYTHON"] = sys.executable

import smla  # noqa: E402
from smla import _library, tensor  # noqa: E402
from smla.kernel import Declared, split_spec, words_of  # noqa: E402
import plain  # noqa: E402

SMALL = "decode b=1 s_q=1 h_q=2 s_kv=10 topk=5"


def has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def smla(self, *words, status=0):
        done = subprocess.run([str(BUILD / "smla"), *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def check(self, spec, *words, status=0, case=SMALL):
        return self.smla("check", "--python", spec, "--case", case, "--progress", "none", *words, status=status)


class Worker(InFolder):
    def broken(self, name, *words, **more):
        return self.check(f"{HERE / 'broken.py'}:{name} arrays=tensor", *words, **more)

    def test_a_right_kernel_passes_every_check(self):
        text = self.check(f"{EXAMPLES / 'plain.py'}:plain", "--checks", "all", case="decode b=2 s_q=1 h_q=2 s_kv=40 topk=20 sink=mixed")
        self.assertRegex(text, r"(?m)^pass +plain ")

    def test_what_the_function_does_not_take_is_declined(self):
        text = self.check(f"{HERE / 'broken.py'}:writes_nothing arrays=tensor", "-v", status=77, case=SMALL + " sink=finite")
        self.assertIn("takes no sink", text)
        self.assertIn("it declines everything", self.broken("declines", "-v", status=77))
        self.assertIn("kv_format=fp8_656", self.check(f"{EXAMPLES / 'plain.py'}:plain", "-v", status=77, case=SMALL + " kv_format=fp8_656"))

    def test_an_exception_is_a_crash_with_the_last_line_of_its_traceback(self):
        text = self.broken("raises", status=1)
        self.assertRegex(text, r"(?m)^crash +raises ")
        self.assertRegex(text, r"ValueError: a planted fault \(broken\.py:\d+ in raises\)")
        self.assertIn("SystemExit: 3", self.broken("exits", status=1))

    def test_without_memory_it_is_oom(self):
        for name, told in (("wants_too_much", r"launch 1 of 2 .*: MemoryError \(broken\.py:\d+ in wants_too_much\)"), ("wants_too_much_of_a_gpu", "2 GiB are wanted")):
            with self.subTest(name):
                text = self.broken(name, status=1)
                self.assertRegex(text, rf"(?m)^oom +{name} ")
                self.assertRegex(text, told)

    def test_a_fault_and_a_hang_cost_one_row(self):
        self.assertIn("SIGSEGV in launch 1", self.broken("segfaults", status=1))
        self.assertRegex(self.broken("hangs", "--case-timeout", "0.5", status=1), r"(?m)^timeout +hangs ")

    def test_a_wrong_kernel_is_caught_and_its_line_reruns_it(self):
        for name, told in (("ignores_sm_scale", "rows wrong"), ("writes_its_input", "q: byte 0"), ("writes_nothing", "was not written")):
            with self.subTest(name):
                text = self.broken(name, status=1)
                self.assertIn(told, text)
                rerun = re.search(r"rerun: (.*)", text)[1]
                again = subprocess.run(rerun, shell=True, capture_output=True, text=True, cwd=self.folder, env={k: v for k, v in os.environ.items() if k != "SMLA_PYTHON"})
                self.assertEqual(again.returncode, 1, again.stderr)
                self.assertIn(told, again.stdout)

    def test_a_mistake_is_one_line_and_exit_3(self):
        broken = HERE / "broken.py"
        for spec, told in ((f"{broken}:unknown_parameter", "sm_scale"), (f"{broken}:takes_no_q", "takes no 'q'"), (f"{broken}:not_there", "not_there"),
                           ("nowhere.py:f", "nowhere.py is not there"), ("nowhere", "FILE.py:FUNCTION"), (f"{broken}:raises arrays=tensor lse_bas=two", "lse_base"),
                           (f"{broken}:raises device=gpu", "device"), (f"{broken}:raises arrays=tensor name=cpu_naive", "cpu_naive"),
                           (f"{broken}:raises arrays=tensors", "tensor"), (f"{broken}:HERE", "HERE")):
            with self.subTest(spec):
                text = self.check(spec, status=3)
                self.assertIn(told, text)
                self.assertEqual(text.count("\n"), 1, text)
        (self.folder / "bad.py").write_text("import no_such_module\n")
        self.assertIn("no_such_module", self.check("bad.py:f", status=3))
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["bad.py"])

    def test_an_adapter_without_its_library_says_so(self):
        for adapter, library in (("flashmla", "flash_mla"), ("flashinfer_mla", "flashinfer"), ("vllm_triton", "vllm")):
            if not has(library):
                text = self.check(f"{HERE.parent / 'adapters' / adapter}.py:sparse_decode", status=3)
                self.assertRegex(text, rf"No module named '({library}|torch)")

    def test_an_interpreter_that_is_not_there(self):
        os.environ["SMLA_PYTHON"] = "/nowhere/python3"
        self.addCleanup(os.environ.__setitem__, "SMLA_PYTHON", sys.executable)
        self.assertIn("SMLA_PYTHON", self.check(f"{EXAMPLES / 'plain.py'}:plain", status=3))

    def test_two_kernels_beside_a_built_in_one(self):
        text = self.check(f"{EXAMPLES / 'plain.py'}:plain", "--python", f"{EXAMPLES / 'plain.py'}:plain name=again", "--kernel", "plain", "--kernel", "again", "--kernel", "cpu_naive")
        for name in ("plain", "again", "cpu_naive"):
            self.assertRegex(text, rf"(?m)^pass +{name} ")

    @unittest.skipUnless(has("numpy"), "numpy is not here")
    def test_numpy(self):
        for case in (SMALL + " sink=mixed", "decode b=2 s_q=2 h_q=3 s_kv=90 topk=40 kv_format=fp8_656 pattern=all_invalid topk_length=1"):
            self.assertRegex(self.check(f"{EXAMPLES / 'in_numpy.py'}:in_numpy", "--checks", "all", case=case), r"(?m)^pass +in_numpy ")

    @unittest.skipUnless(has("torch"), "torch is not here")
    def test_torch(self):
        for case in (SMALL + " sink=mixed", "decode b=2 s_q=2 h_q=3 s_kv=90 topk=40 kv_format=fp8_656 pattern=all_invalid topk_length=1"):
            self.assertRegex(self.check(f"{EXAMPLES / 'in_torch.py'}:on_cpu", "--checks", "all", case=case), r"(?m)^pass +on_cpu ")


class Module(InFolder):
    def test_what_gpu_is_here_is_asked_of_the_program_beside_the_library(self):  # this process is Python: its own executable cannot answer
        try:
            smla.runs.Session(plain.plain, device="cuda", arrays="tensor", case=[SMALL], out=str(self.folder)).close()
        except smla.SmlaError as error:
            self.assertRegex(str(error), r"needs a GPU: (no CUDA driver|this build has no CUDA|no GPU)")

    def test_check_bench_and_compare(self):
        out = str(self.folder / "out")
        with quiet():
            checked = smla.check(plain.plain, case=SMALL, out=out, contract={"lse_base": "e"})
            timed = smla.bench(plain.plain, case=SMALL, out=out, max_time=0.5)  # in Python: 5 samples, the least that are compared, take a while
            smla.verb("bench", "--kernel", "cpu_naive", "--case", SMALL, "--out", out, "--max-time", 0.5, "--progress", "none")
            compared = smla.compare("cpu_naive", "plain", in_=str(timed.folder))
        self.assertTrue(checked.ok)
        self.assertEqual([(row["tensor"], row["status"]) for row in checked.rows], [("out", "pass"), ("lse", "pass")])
        self.assertGreater(float(timed.times[0]["time_us_median"]), 0)
        self.assertIn("slower", compared.text)

    def test_what_a_worker_cannot_import_is_refused(self):
        with self.assertRaisesRegex(smla.SmlaError, "top level"):
            smla.check(lambda q, kv, indices, out: None, case=SMALL)
        with self.assertRaisesRegex(smla.SmlaError, "quick"):
            smla.check(plain.plain, suite="quik")

    def test_a_session_judges_case_by_case_and_keeps_signal_handlers(self):
        import signal
        before = signal.getsignal(signal.SIGINT)
        with smla.Session(plain.plain, case=[SMALL, SMALL + " seed=2"], out=str(self.folder / "out")) as session:
            self.assertEqual(session.lines, [SMALL, SMALL + " seed=2"])
            answer = session.check(session.lines[1])
            self.assertEqual((answer[0]["kernel"], answer[0]["status"], answer[0]["red"]), ("plain", "pass", False))
            self.assertLess(float(answer[0]["out"]["z_max"]), 6)
            with self.assertRaisesRegex(smla.SmlaError, "not a case"):
                session.check("decode b=3")
        self.assertIs(signal.getsignal(signal.SIGINT), before)
        self.assertTrue(list((self.folder / "out").rglob("summary.md")))
        with self.assertRaisesRegex(smla.SmlaError, "topk"):
            smla.Session(plain.plain, case="decode topkk=3")

    @unittest.skipUnless(has("pytest"), "pytest is not here")
    def test_pytest_has_one_test_a_case_named_by_its_line(self):
        (self.folder / "test_it.py").write_text(
            f"import sys\nsys.path[:0] = [{str(BUILD / 'python')!r}, {str(EXAMPLES)!r}, {str(HERE)!r}]\nimport broken, plain, smla.testing\n"
            f"test_right = smla.testing.cases(plain.plain, case=['{SMALL}', '{SMALL} kv_format=fp8_656'])\n"
            f"test_wrong = smla.testing.cases(broken.ignores_sm_scale, case='{SMALL}')\n")
        done = subprocess.run([sys.executable, "-B", "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_it.py"], capture_output=True, text=True, cwd=self.folder)
        text = done.stdout + done.stderr
        self.assertEqual(done.returncode, 1, text)
        self.assertIn("1 failed, 1 passed, 1 skipped", text)
        self.assertIn(f"PASSED test_it.py::test_right[{SMALL}]", text)
        self.assertRegex(text, r"rerun: SMLA_PYTHON=\S+ \S+/smla check --kernel ignores_sm_scale")


class quiet:
    def __enter__(self):
        self.kept, sys.stdout = sys.stdout, open(os.devnull, "w")

    def __exit__(self, *error):
        sys.stdout.close()
        sys.stdout = self.kept


class Structs(unittest.TestCase):
    def test_structs_are_those_of_the_header(self):
        source = "#include <stdio.h>\n#include \"kernels/api/smla_kernel.h\"\nint main(void) { printf(\"{"
        kinds = {"smla_problem": _library.Problem, "smla_buffers": _library.Buffers, "smla_contract": _library.Contract, "smla_kernel": _library.Kernel,
                 "smla_library": _library.Library}
        entries, arguments = [], []
        for kind, mirror in kinds.items():
            entries.append(f'\\"{kind}\\": %zu')
            arguments.append(f"sizeof({kind})")
            for field, _ in mirror._fields_:
                entries.append(f'\\"{kind}.{field}\\": %zu')
                arguments.append(f"__builtin_offsetof({kind}, {field})")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "sizes.c").write_text(source + ", ".join(entries) + '}\\n", ' + ", ".join(arguments) + "); return 0; }\n")
            compiler = os.environ.get("CC", "cc")
            subprocess.run([compiler, f"-I{HERE.parents[2]}", str(path / "sizes.c"), "-o", str(path / "sizes")], check=True)
            sizes = json.loads(subprocess.run([path / "sizes"], capture_output=True, text=True, check=True).stdout)
        for kind, mirror in kinds.items():
            self.assertEqual(sizes[kind], ctypes.sizeof(mirror), kind)
            for field, _ in mirror._fields_:
                self.assertEqual(sizes[f"{kind}.{field}"], getattr(mirror, field).offset, f"{kind}.{field}")

    def test_contract_words(self):
        contract = _library.contract_of("lse_base=two p=fp16 deterministic=yes")
        self.assertEqual((contract.lse_base, contract.p_round, contract.deterministic), (1, 2, 1))
        self.assertEqual(words_of({"lse_base": "two", "deterministic": True, "p_scale": 448}), "lse_base=two deterministic=yes p_scale=448")
        with self.assertRaisesRegex(smla.SmlaError, "tail_only"):
            _library.contract_of("padding=tail_onl")

    def test_spec(self):
        self.assertEqual(split_spec("a b/c.py:f.g device=cuda p=fp32 name=x"), ("a b/c.py", "f.g", {"device": "cuda", "name": "x"}, "p=fp32"))
        for bad in ("c.py", "c.py:", "c.txt:f", "c.py:f word"):
            with self.assertRaises(smla.SmlaError):
                split_spec(bad)

    def test_a_function_declares_by_what_it_takes(self):
        self.assertEqual(Declared(lambda q, kv, indices, out: None, {"name": "x"}).contract, "lse_dtype=none")
        declared = Declared(smla.kernel(lambda call: None, device="cuda", contract={"p": "fp32"}), {"name": "x"}, "p=fp16")
        self.assertEqual((declared.contract, declared.arrays), ("p=fp32 p=fp16", "tensor"))  # the later word holds
        with self.assertRaisesRegex(smla.SmlaError, "fp8_656"):
            Declared(smla.kernel(lambda call: None, kv_formats=["fp8"]), {"name": "x"})


class Tensors(unittest.TestCase):
    def setUp(self):
        self.memory = (ctypes.c_uint16 * 24)(*range(24))
        self.at = ctypes.addressof(self.memory)

    def test_bf16(self):
        for value, bits in ((1.0, 0x3F80), (-2.5, 0xC020), (float("inf"), 0x7F80), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82), (1e-45, 0x0000)):
            self.assertEqual(tensor.bf16_of(value), bits)
        self.assertNotEqual(tensor.bf16_value(tensor.bf16_of(float("nan"))), 0)
        self.assertTrue(tensor.bf16_value(tensor.bf16_of(float("nan"))) != tensor.bf16_value(tensor.bf16_of(float("nan"))))

    def test_views_read_and_write(self):
        t = smla.Tensor(self.at, (2, 3), "bf16", (24, 4), writable=True)
        t[1, 2] = 1.5
        t[0] = [1, 2, 3]
        self.assertEqual((t[1, 2], t[0].floats(), t[-1][2]), (1.5, [1, 2, 3], 1.5))
        self.assertEqual(self.memory[12 + 4], 0x3FC0)
        self.assertEqual(self.memory[1], 1)  # what lies between its elements is not its own

    def test_bad_accesses(self):
        t = smla.Tensor(self.at, (2, 3), "bf16")
        for body in (lambda: t[2], lambda: t[0, 0, 0], lambda: t[0, 3]):
            with self.assertRaises(IndexError):
                body()
        with self.assertRaisesRegex(TypeError, "input"):
            t[0] = [1, 2, 3]
        writable = smla.Tensor(self.at, (2, 3), "bf16", writable=True)
        with self.assertRaisesRegex(ValueError, "1 values for 3"):
            writable[0] = [1]
        with self.assertRaisesRegex(TypeError, "GPU"):
            smla.Tensor(self.at, (2,), "f32", device="cuda:0").floats()

    def test_interfaces(self):
        t = smla.Tensor(self.at, (2, 3), "bf16")
        self.assertEqual(t.__array_interface__["typestr"], "<u2")
        self.assertFalse(hasattr(t, "__cuda_array_interface__"))
        on_gpu = smla.Tensor(self.at, (2, 3), "f32", device="cuda:1", stream=77)
        self.assertFalse(hasattr(on_gpu, "__array_interface__"))
        self.assertEqual((on_gpu.__cuda_array_interface__["stream"], on_gpu.__dlpack_device__()), (77, (2, 1)))

    def test_dlpack_capsules_are_freed_once(self):
        t = smla.Tensor(self.at, (2, 3), "bf16")
        before = len(tensor._live)
        capsule = t.__dlpack__()
        self.assertEqual(len(tensor._live), before + 1)
        del capsule
        self.assertEqual(len(tensor._live), before)
        with self.assertRaises(BufferError):
            smla.Tensor(self.at, (2,), "f32", (6,)).__dlpack__()

    @unittest.skipUnless(has("numpy"), "numpy is not here")
    def test_numpy_sees_the_same_memory(self):
        import numpy
        array = numpy.asarray(smla.Tensor(self.at, (3, 2), "i32", (16, 4), writable=True))
        array[2, 1] = 12345
        self.assertEqual(struct.unpack_from("<i", self.memory, 36)[0], 12345)
        if hasattr(numpy, "from_dlpack"):
            before = len(tensor._live)
            view = numpy.from_dlpack(smla.Tensor(self.at, (4,), "i32", writable=True))
            self.assertEqual(view.shape, (4,))
            del view
            self.assertEqual(len(tensor._live), before)


class Captures(InFolder):
    def test_safetensors_round_trip(self):
        path = self.folder / "x.safetensors"
        smla.save_safetensors(path, {"q": ("BF16", (1, 2), b"abcd"), "sink": None, "n": ("I32", (1,), b"\1\0\0\0")}, {"sm_scale": 0.5})
        self.assertEqual(smla.load_safetensors(path), ({"q": ("BF16", (1, 2), b"abcd"), "n": ("I32", (1,), b"\1\0\0\0")}, {"sm_scale": "0.5"}))
        (self.folder / "short").write_bytes(b"\xff" * 8)
        with self.assertRaisesRegex(smla.SmlaError, "cut short"):
            smla.load_safetensors(self.folder / "short")

    def captured(self, case, *words):
        path = self.folder / "call.safetensors"
        self.smla("capture", case, path, "--kernel", "cpu_naive", *words)
        return path

    def changed(self, path, **tensors):
        """The file with some tensors replaced; None leaves one out."""
        old, metadata = smla.load_safetensors(path)
        smla.save_safetensors(path, {name: tensors.get(name, value) for name, value in old.items()}, metadata)

    def test_a_capture_replays_green(self):
        for case in (SMALL, "decode b=3 s_q=2 h_q=5 s_kv=200 topk=70 kv_format=fp8_656 sink=mixed topk_length=1 pattern=stale_tail",
                     "prefill b=2 s_q=8 h_q=4 s_kv=90 topk=64 q_dtype=fp16 kv_format=fp16 pattern=all_invalid page_size=16 page_stride_rows=20"):
            with self.subTest(case):
                text = self.smla("replay", self.captured(case))
                self.assertRegex(text, r"(?m)^result  pass: ")
                self.assertIn("by cpu_naive", text)

    def test_what_a_python_kernel_answered_is_captured_and_judged(self):
        path = self.folder / "wrong.safetensors"
        self.smla("capture", SMALL, path, "--python", f"{HERE / 'broken.py'}:ignores_sm_scale")
        text = self.smla("replay", path, status=1)
        self.assertRegex(text, r"(?m)^result  fail: ")
        self.assertRegex(text, r"(?m)^  FAIL b=0 s_q=0 h=\d \(5 keys\): z \d+\.\d+ at d=\d+, got ")

    def test_the_worst_row_comes_first(self):
        path = self.captured("decode b=3 s_q=1 h_q=4 s_kv=90 topk=40")
        dtype, shape, raw = smla.load_safetensors(path)[0]["out"]
        row = (1 * 4 + 2) * 512 * 2  # b=1, h=2
        damaged = bytearray(raw)
        damaged[row + 2 * 100 : row + 2 * 102] = struct.pack("<2H", tensor.bf16_of(3.0), tensor.bf16_of(-7.0))
        self.changed(path, out=(dtype, shape, bytes(damaged)))
        lines = self.smla("replay", path, "--rows", "2", status=1).splitlines()
        first = lines[lines.index("worst rows") + 1]
        self.assertRegex(first, r"^  FAIL b=1 s_q=0 h=2 \(40 keys\): z \S+ at d=10[01], got (3|-7), ")
        self.assertRegex(lines[lines.index("worst rows") + 2], r"^  ok ")
        self.assertEqual(len(lines), lines.index("worst rows") + 3)
        slightly = 512 * 2  # b=0, h=1: wrong too, and less
        damaged[slightly : slightly + 2] = struct.pack("<H", tensor.bf16_of(1.0))
        self.changed(path, out=(dtype, shape, bytes(damaged)))
        lines = self.smla("replay", path, "--rows", "2", status=1).splitlines()
        self.assertRegex("\n".join(lines[lines.index("worst rows") + 1 :]), r"^  FAIL b=1 s_q=0 h=2 .*\n  FAIL b=0 s_q=0 h=1 ")

    def test_another_contract_is_another_verdict(self):
        path = self.captured(SMALL)
        self.assertRegex(self.smla("replay", path, "--contract", "lse_base=two", status=1), r"lse of 2 of 2 rows wrong")
        self.assertIn("lse_base", self.smla("replay", path, "--contract", "lse_bass=two", status=3))

    def test_inputs_that_are_no_numbers_are_told_and_not_judged(self):
        path = self.captured("decode b=2 s_q=1 h_q=2 s_kv=10 topk=5")
        dtype, shape, raw = smla.load_safetensors(path)[0]["q"]
        self.changed(path, q=(dtype, shape, struct.pack("<H", 0x7FC0) + raw[2:]))
        text = self.smla("replay", path)
        self.assertIn("q b=0 s_q=0 h=0 channel 0 is nan: 1 of 2 tokens", text)

    def test_entries_beyond_the_pool_are_told(self):
        path = self.captured("decode b=2 s_q=1 h_q=2 s_kv=10 topk=5")
        self.assertNotIn("no slot of the pool", self.smla("replay", path))
        dtype, shape, raw = smla.load_safetensors(path)[0]["indices"]
        self.changed(path, indices=(dtype, shape, raw[:24] + struct.pack("<2i", 1 << 20, -7) + raw[32:]))
        text = self.smla("replay", path, status=1)  # the answer was made of those keys, too
        self.assertRegex(text, r"(?m)^inputs  2 entries of the lists name no slot of the pool's \d+ and are not -1: no keys; the first is b=1 s_q=0 entry 1: 1048576$")

    def test_bad_captures_are_one_line_and_exit_3(self):
        def says(told, **tensors):
            path = self.captured("decode b=2 s_q=1 h_q=2 s_kv=10 topk=5 sink=finite")
            self.changed(path, **tensors)
            text = self.smla("replay", path, status=3)
            self.assertIn(told, text)
            self.assertEqual(text.count("\n"), 1, text)

        says("kv: is not in the file", kv=None)
        says("q: has shape [2, 2, 576], [b][s_q][h_q][d_qk] is wanted", q=("BF16", (2, 2, 576), bytes(2 * 2 * 576 * 2)))
        says("q: has dtype F32, BF16 or F16 is wanted", q=("F32", (2, 1, 2, 576), bytes(2 * 2 * 576 * 4)))
        says("indices: has dtype I64, I32 is wanted", indices=("I64", (2, 1, 5), bytes(80)))
        says("indices: has shape [3, 1, 5], [2][1][topk] is wanted", indices=("I32", (3, 1, 5), bytes(60)))
        says("out: has shape [2, 1, 2, 256], [2, 1, 2, 512] is wanted", out=("BF16", (2, 1, 2, 256), bytes(2 * 2 * 256 * 2)))
        says("sink: has shape [3], [2] is wanted", sink=("F32", (3,), bytes(12)))
        says("kv: has rows of 500, 576 is wanted", kv=("BF16", (1, 1, 500), bytes(1000)))
        for raw, told in ((b"", "no safetensors"), (b"\xff" * 8, "no safetensors"), (struct.pack("<Q", 90) + b"{}", "cut short"), (b"hello, this is a text file", "no safetensors")):
            (self.folder / "bad").write_bytes(raw)
            self.assertIn(told, self.smla("replay", "bad", status=3))
        self.assertIn("/nowhere", self.smla("replay", "/nowhere", status=3))
        self.assertIn("topk", self.smla("capture", "decode topkk=3", "x", status=3))
        self.assertIn("address space", self.smla("capture", "decode b=1 h_q=1 s_kv=512 topk=64 pattern=far", "x", "--kernel", "cpu_naive", status=3))

    def test_what_failed_is_dumped(self):
        text = self.check(f"{HERE / 'broken.py'}:ignores_sm_scale", "--dump", "failed", "--out", "out", status=1)
        replay = re.search(r"captured: (\S+/smla replay \S+)", text)
        self.assertIn("FAIL", subprocess.run(replay[1], shell=True, capture_output=True, text=True, cwd=self.folder).stdout, text)
        self.check(f"{EXAMPLES / 'plain.py'}:plain", "--dump", "failed", "--out", "green")
        self.assertFalse(list((self.folder / "green").rglob("*.safetensors")))
        self.assertIn("failed", self.check(f"{EXAMPLES / 'plain.py'}:plain", "--dump", "faild", status=3))

    def test_index_files_drive_cases_and_are_described(self):
        rows = [[0, 1, 2, 40], [3, -1, 9, 8]]
        header = b"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 4), }\n"
        (self.folder / "indices.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<8i", *sum(rows, [])))
        text = self.check(f"{EXAMPLES / 'plain.py'}:plain", case="decode b=2 s_q=1 h_q=2 s_kv=41 topk=4 pattern=file:indices.npy")
        self.assertRegex(text, r"(?m)^pass +plain .*pattern=file:indices\.npy")
        self.assertIn("names position 40", self.check(f"{EXAMPLES / 'plain.py'}:plain", case="decode b=2 s_q=1 h_q=2 s_kv=40 topk=4 pattern=file:indices.npy", status=3))
        text = self.smla("list", "indices", "indices.npy")
        self.assertIn("2 rows of 4 entries; positions 0 to 40", text)
        self.assertIn("12.50 % of entries; behind all keys in 0 rows (0.0 %), first in 0 rows (0.0 %), between keys in 1 rows (50.0 %)", text)
        self.assertIn("FILE is missing", self.smla("list", "indices", status=3))
        self.assertIn("nowhere.npy", self.smla("list", "indices", "nowhere.npy", status=3))

    @unittest.skipUnless(has("numpy"), "numpy is not here")
    def test_npz(self):
        import numpy
        tensors, metadata = smla.load_safetensors(self.captured(SMALL))
        kinds = {"BF16": numpy.uint16, "I32": numpy.int32, "F32": numpy.float32}
        numpy.savez(self.folder / "call.npz", sm_scale=float(metadata["sm_scale"]),
                    **{name: numpy.frombuffer(raw, kinds[dtype]).reshape(shape) for name, (dtype, shape, raw) in tensors.items()})
        smla.npz_to_safetensors(self.folder / "call.npz", self.folder / "again.safetensors", kernel="from numpy")
        self.assertIn("by from numpy", self.smla("replay", "again.safetensors"))

    @unittest.skipUnless(has("torch"), "torch is not here")
    def test_a_capture_from_torch(self):
        import torch
        import in_torch
        torch.manual_seed(1)
        q, kv = torch.randn(2, 1, 4, 576).to(torch.bfloat16), torch.randn(4, 16, 576).to(torch.bfloat16)
        indices = torch.stack([torch.randperm(64)[:20] for _ in range(2)]).int().view(2, 1, 20)
        out, lse = torch.empty(2, 1, 4, 512, dtype=torch.bfloat16), torch.empty(2, 1, 4)
        in_torch.sparse_mla(q, kv, indices, None, None, out, lse, 0.04, 512, "bf16", "bf16", 64)
        smla.save_safetensors(self.folder / "torch.safetensors", dict(q=q, kv=kv, indices=indices, topk_length=None, out=out, lse=lse), dict(sm_scale=0.04))
        self.assertRegex(self.smla("replay", "torch.safetensors"), r"(?m)^result  pass: ")


if __name__ == "__main__":
    unittest.main(verbosity=1)
