#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same kernels on the same shapes, timed by `smla bench` and by Triton's do_bench: do the two stopwatches agree?

  scripts/compare_do_bench.py --smla BUILD/smla --library BUILD/smla_built_in.so [--kernel NAME] [--out FILE.csv]

Needs a GPU, torch and triton. The kernels come through the C door (kernels/api/smla_kernel.h) by ctypes, on torch's stream. Three times beside that of `smla`:

  do_bench   caches cleared by writing 256 MB, whose dirty lines are still being written back in the timed span; call after call
  spaced     cleared in the same way, then 4 ms of pause before each call: a kernel that drives the card into its power limit is slower the denser it is called
  as smla    the pause, the same call once before, and caches cleared by reading 256 MB by ordinary loads (not by torch's reductions: harness/WORKERS.md): the conditions of `smla bench`, by torch's own events

From 20 us on, the call under the same conditions must agree within 2 % (exit status 1 otherwise). Each time stands beside the clock of the
multiprocessors right behind the call, by a kernel that spins a known number of cycles (do_bench's: of the same calls, repeated here).
"""
import argparse
import csv
import ctypes as ct
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        sys.exit()
    sys.exit(f"compare_do_bench: {error}: needs torch and triton")

SHAPES = [(8, 1), (8, 32), (8, 128), (64, 32), (64, 128), (128, 32), (128, 128), (128, 512)]  # (h_q, b)
S_KV, TOPK, D_QK, D_V, PAGE = 32768, 2048, 576, 512, 64
LIMIT, FROM_US = 0.02, 20


class Problem(ct.Structure):
    """smla_problem; see kernels/api/smla_kernel.h."""
    _fields_ = ([("abi_version", ct.c_uint32), ("struct_size", ct.c_uint32)]
                + [(n, ct.c_int32) for n in "pass_kind b s_q h_q s_kv topk d_qk d_v page_size num_pages max_pages pad0".split()]
                + [("num_slots", ct.c_int64), ("q_stride_bytes", ct.c_int64 * 3), ("page_stride_bytes", ct.c_int64), ("indices_stride_bytes", ct.c_int64 * 2),
                   ("block_table_stride_bytes", ct.c_int64), ("out_stride_bytes", ct.c_int64 * 3), ("lse_stride_bytes", ct.c_int64 * 2)]
                + [(n, ct.c_int32) for n in "q_dtype kv_format rope_dtype flags num_splits threads".split()]
                + [("sm_scale", ct.c_float)]
                + [(n, ct.c_int32) for n in "device_ordinal device_cc sm_count pad1".split()]
                + [("smem_optin_bytes", ct.c_int64), ("l2_bytes", ct.c_int64)])


class Buffers(ct.Structure):
    _fields_ = [("struct_size", ct.c_uint32), ("pad0", ct.c_uint32)] + [(n, ct.c_void_p) for n in "q kv indices topk_length block_table seq_lens sink out lse".split()]


class Kernel(ct.Structure):
    pass


CALL = ct.CFUNCTYPE(ct.c_int, ct.POINTER(Kernel), ct.POINTER(Problem), ct.POINTER(Buffers), ct.c_void_p, ct.c_void_p)
Kernel._fields_ = [("struct_size", ct.c_uint32), ("device", ct.c_int32), ("name", ct.c_char_p), ("description", ct.c_char_p), ("user", ct.c_void_p), ("contract", ct.c_void_p),
                   ("supports", ct.CFUNCTYPE(ct.c_int, ct.POINTER(Kernel), ct.POINTER(Problem), ct.c_char_p, ct.c_uint64)),
                   ("workspace_bytes", ct.CFUNCTYPE(ct.c_int64, ct.POINTER(Kernel), ct.POINTER(Problem))), ("prepare", CALL), ("launch", CALL)]


class Library(ct.Structure):
    _fields_ = [("abi_version", ct.c_uint32), ("struct_size", ct.c_uint32), ("num_kernels", ct.c_int32), ("pad0", ct.c_int32), ("kernels", ct.POINTER(ct.POINTER(Kernel)))]


def find(path, name):
    library = ct.CDLL(path)
    library.smla_get_library.restype = ct.POINTER(Library)
    table = library.smla_get_library().contents
    for i in range(table.num_kernels):
        if table.kernels[i].contents.name.decode() == name:
            return table.kernels[i]
    sys.exit(f"{path} has no kernel {name}")


def prepared(kernel, h_q, b):
    """A call of the kernel on torch's stream, over random data of the shape, and the tensors that must outlive it."""
    pages = b * S_KV // PAGE
    kv = torch.randn(pages * PAGE, D_QK, device="cuda").to(torch.bfloat16)
    q = torch.randn(b, 1, h_q, D_QK, device="cuda").to(torch.bfloat16)
    table = torch.randperm(pages, device="cuda", dtype=torch.int32).view(b, -1)
    positions = torch.stack([torch.randperm(S_KV, device="cuda")[:TOPK] for _ in range(b)])
    indices = (torch.gather(table.long(), 1, positions // PAGE) * PAGE + positions % PAGE).to(torch.int32)
    lens = torch.full((b,), S_KV, device="cuda", dtype=torch.int32)
    out, lse = torch.empty(b, 1, h_q, D_V, device="cuda", dtype=torch.bfloat16), torch.empty(b, 1, h_q, device="cuda")
    device = torch.cuda.get_device_properties(0)
    p = Problem(abi_version=1, struct_size=ct.sizeof(Problem), b=b, s_q=1, h_q=h_q, s_kv=S_KV, topk=TOPK, d_qk=D_QK, d_v=D_V, page_size=PAGE, num_pages=pages, max_pages=S_KV // PAGE,
                num_slots=pages * PAGE, q_stride_bytes=(h_q * D_QK * 2, h_q * D_QK * 2, D_QK * 2), page_stride_bytes=PAGE * D_QK * 2, indices_stride_bytes=(TOPK * 4, TOPK * 4),
                block_table_stride_bytes=S_KV // PAGE * 4, out_stride_bytes=(h_q * D_V * 2, h_q * D_V * 2, D_V * 2), lse_stride_bytes=(h_q * 4, h_q * 4), flags=2, sm_scale=256 ** -0.5,
                device_cc=device.major * 10 + device.minor, sm_count=device.multi_processor_count, smem_optin_bytes=232448, l2_bytes=device.L2_cache_size)
    reason = ct.create_string_buffer(256)
    if not kernel.contents.supports(kernel, p, reason, 256):
        return None, reason.value.decode()
    workspace = torch.empty(max(1, kernel.contents.workspace_bytes(kernel, p)), device="cuda", dtype=torch.uint8)
    buffers = Buffers(struct_size=ct.sizeof(Buffers), q=q.data_ptr(), kv=kv.data_ptr(), indices=indices.data_ptr(), block_table=table.data_ptr(), seq_lens=lens.data_ptr(),
                      out=out.data_ptr(), lse=lse.data_ptr())
    stream = lambda: torch.cuda.current_stream().cuda_stream  # noqa: E731
    if kernel.contents.prepare and kernel.contents.prepare(kernel, p, buffers, workspace.data_ptr(), stream()):
        sys.exit("prepare failed")

    def call():
        if kernel.contents.launch(kernel, p, buffers, workspace.data_ptr(), stream()):
            sys.exit("launch failed")
    return call, (kv, q, table, indices, lens, out, lse, workspace, p, buffers)


@triton.jit
def read_over(words, sink, BLOCK: tl.constexpr):
    largest = tl.max(tl.load(words + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0)
    if largest == 0x7fffffff:  # none is: only so that the loads are not left out
        tl.store(sink, largest)


class Stopwatch:
    """Calls between two events of torch's, as do_bench makes them, with other conditions. Memory of its own: 256 MB."""
    SPIN = 1_000_000  # cycles: half a millisecond

    def __init__(self):
        self.cache = torch.ones(64 << 20, dtype=torch.int32, device="cuda")
        self.sink = torch.zeros(1, dtype=torch.int32, device="cuda")

    def write(self):
        self.cache.zero_()

    def read(self):
        read_over[(self.cache.numel() // 4096,)](self.cache, self.sink, BLOCK=4096)

    def time(self, call, clear, pause_s=0.0, twice=False, runs=25):
        """Median (us, MHz)."""
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in range(runs)]
        for begin, end, spin, spun in events:
            if twice:
                call()
            clear()
            if pause_s:
                torch.cuda.synchronize()
                time.sleep(pause_s)
                torch.cuda._sleep(self.SPIN)  # holds the stream until all is enqueued
            begin.record()
            call()
            end.record()
            spin.record()
            torch.cuda._sleep(self.SPIN)
            spun.record()
        torch.cuda.synchronize()
        return (statistics.median(begin.elapsed_time(end) * 1e3 for begin, end, _, _ in events),
                statistics.median(self.SPIN / spin.elapsed_time(spun) / 1e3 for _, _, spin, spun in events))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smla", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--kernel", default="sparse_mma")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    lines = [f"decode b={b} s_q=1 h_q={h_q} s_kv={S_KV} topk={TOPK}" for h_q, b in SHAPES]
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.smla, "bench", "--kernel", arguments.kernel, "--checks", "none", "--oracle-rows", "4", "--progress", "none", "--out", folder]
        for line in lines:
            command += ["--case", line]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/sm_{''.join(map(str, torch.cuda.get_device_capability()))}/throughput.csv", newline="") as file:
            ours = {(int(row["h_q"]), int(row["b"])): row for row in csv.DictReader(file)}
    kernel = find(arguments.library, arguments.kernel)
    rows, wrong, stopwatch = [], 0, Stopwatch()
    print(f"{'h_q':>5} {'b':>5} {'smla us':>9} {'MHz':>5} {'do_bench us':>12} {'difference':>10} {'MHz':>5} {'spaced us':>10} {'difference':>10} {'MHz':>5} {'as smla us':>11} {'difference':>10} {'MHz':>5}")
    for h_q, b in SHAPES:
        call, kept = prepared(kernel, h_q, b)
        if call is None:
            print(f"{h_q:>5} {b:>5} {kept}")
            continue
        theirs = triton.testing.do_bench(call, warmup=50, rep=200, return_mode="median") * 1e3
        dense_mhz = stopwatch.time(call, stopwatch.write, runs=100)[1]
        spaced, spaced_mhz = stopwatch.time(call, stopwatch.write, pause_s=0.004)
        alike, alike_mhz = stopwatch.time(call, stopwatch.read, pause_s=0.004, twice=True)
        row = ours[h_q, b]
        mine = float(row["time_us_median"])
        bad = mine >= FROM_US and abs(alike / mine - 1) > LIMIT
        wrong += bad
        print(f"{h_q:>5} {b:>5} {mine:>9.2f} {row['sm_clock_mhz_median']:>5}" + "".join(
            f" {us:>{width}.2f} {us / mine - 1:>+10.2%} {mhz:>5.0f}" for us, mhz, width in [(theirs, dense_mhz, 12), (spaced, spaced_mhz, 10), (alike, alike_mhz, 11)])
            + ("  beyond 2 %" if bad else ""))
        rows.append({"kernel": arguments.kernel, "h_q": h_q, "b": b, "smla_us": f"{mine:.9g}", "smla_rel_iqr": row["time_rel_iqr"], "smla_mhz": row["sm_clock_mhz_median"],
                     "do_bench_us": f"{theirs:.9g}", "do_bench_mhz": f"{dense_mhz:.5g}", "spaced_us": f"{spaced:.9g}", "spaced_mhz": f"{spaced_mhz:.5g}", "as_smla_us": f"{alike:.9g}",
                     "as_smla_mhz": f"{alike_mhz:.5g}", "launch_floor_us": row["launch_floor_us"], "device": row["device_name"], "torch": torch.__version__, "triton": triton.__version__})
        del call, kept
        torch.cuda.empty_cache()
    if arguments.out and rows:
        with open(arguments.out, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
