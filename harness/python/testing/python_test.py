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

    def test_a_fault_and_a_hang_cost_one_row(self):
        self.assertIn("SIGSEGV in launch 1", self.broken("segfaults", status=1))
        self.assertRegex(self.broken("hangs", "--case-timeout", "0.5", status=1), r"(?m)^timeout +hangs ")

    def test_a_wrong_kernel_is_caught_and_its_line_reruns_it(self):
        for name, told in (("ignores_sm_scale", "rows wrong"), ("writes_its_input", "q: byte 0"), ("writes_nothing", "was not written")):
            with self.subTest(name):
                text = self.broken(name, status=1)
                self.assertIn(told, text)
                rerun = re.search(r"rerun: (smla check .*)", text)[1]
                again = subprocess.run(rerun, shell=True, capture_output=True, text=True, cwd=self.folder, env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"})
                self.assertEqual(again.returncode, 1, again.stderr)
                self.assertIn(told, again.stdout)

    def test_a_mistake_is_one_line_and_exit_3(self):
        broken = HERE / "broken.py"
        for spec, told in ((f"{broken}:unknown_parameter", "sm_scale"), (f"{broken}:takes_no_q", "takes no 'q'"), (f"{broken}:not_there", "not_there"),
                           ("nowhere.py:f", "nowhere.py is not there"), ("nowhere", "FILE.py:FUNCTION"), (f"{broken}:raises lse_bas=two", "lse_base"),
                           (f"{broken}:raises device=gpu", "device"), (f"{broken}:raises arrays=tensor name=cpu_naive", "cpu_naive"),
                           (f"{broken}:raises arrays=tensors", "tensor"), (f"{broken}:HERE", "HERE")):
            with self.subTest(spec):
                text = self.check(spec, status=3)
                self.assertIn(told, text)
                self.assertEqual(text.count("\n"), 1, text)
        (self.folder / "bad.py").write_text("import no_such_module\n")
        self.assertIn("no_such_module", self.check("bad.py:f", status=3))
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["bad.py"])

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
    def test_check_bench_and_compare(self):
        out = str(self.folder / "out")
        with quiet():
            checked = smla.check(plain.plain, case=SMALL, out=out, contract={"lse_base": "e"})
            timed = smla.bench(plain.plain, case=SMALL, out=out, max_time=0.05)
            smla.verb("bench", "--kernel", "cpu_naive", "--case", SMALL, "--out", out, "--max-time", 0.05, "--progress", "none")
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
        self.assertIn("rerun: smla check --kernel ignores_sm_scale", text)


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


if __name__ == "__main__":
    unittest.main(verbosity=1)
