#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hostile_test.py BUILD: kernels that misbehave, as a plug-in, over two cases. Prints a table: kernel, status, what was said.

   Exit 1: a kernel has another status than it should, a case was not run after it, or a row is missing.
"""
import argparse
import csv
import pathlib
import re
import subprocess
import sys
import tempfile

# Numbers are wrong (zeros), so `fail` is the least; what else is found stands beside it.
EXPECTED = {
    "healthy": ("fail", "rows wrong"),
    "abort": ("crash", "SIGABRT in launch 1 of"),
    "segv": ("crash", "SIGSEGV in launch 1 of"),
    "loop": ("timeout", "no answer within 1 s in launch 1 of"),
    "sleep": ("timeout", "no answer within 1 s in launch 1 of"),
    "error": ("crash", "tile count 0 is not supported"),
    "returns_enomem": ("oom", "no room for its tiles"),
    "error_lines": ("crash", "tile  .31m. 0 . \ufffd is not supported"),  # a line feed, an escape sequence, bytes that are no text
    "silent_error": ("crash", "returned -3"),
    "write_past_out": ("fail", "guards: out: byte .* was written"),
    "write_before_out": ("fail", "guards: out: the byte 2 before its first one was written"),
    "write_far_past_out": ("crash", "SIGSEGV .* past the end of out"),
    "write_gap": ("fail", "rows wrong"),  # there is no gap in these cases
    "write_inputs": ("fail", "inputs: indices: byte .* was written"),
    "write_inputs_and_fail": ("crash", "tile count 0"),
    "write_inputs_and_restore": ("fail", "inputs: indices: byte 20 of .* was written"),
    "write_pool": ("fail", "inputs: kv: byte .* was written"),
    "write_slot_minus_1": ("fail", "inputs: kv: byte -1"),
    "write_past_workspace": ("fail", "guards: workspace: byte 64 was written"),
    "print_stdout": ("fail", "rows wrong"),
    "flood_stdout": ("fail", "rows wrong"),
    "throw_exception": ("crash", "threw: no such tile"),
    "throw_int": ("crash", "threw something"),
    "exit3": ("crash", "exited with 3"),
    "quick_exit0": ("crash", "exited with 0"),
    "fork": ("crash", "left a child process behind"),
    "fork_stray": ("crash", "left a child process behind"),
    "fork_setsid": ("crash", "left a child process behind"),
    "daemon_die": ("crash", "SIGABRT in launch 1 of"),
    "fork_and_wait": ("fail", "rows wrong"),
    "fork_die": ("crash", "SIGABRT"),
    "thread_stray": ("fail", "rows wrong"),
    "leak_throw": ("oom", "std::bad_alloc"),
    "leak_abort": ("oom", "at its memory limit"),
    "leak_some": ("oom", "std::bad_alloc"),  # at the third call
    "close_fds": ("crash", "descriptors that are not the kernel's own were closed"),
    "close_stdout": ("crash", "descriptor that is not the kernel's own"),
    "write_fds": ("crash", "wrote to the protocol's descriptor"),
    "stack_overflow": ("crash", "SIGSEGV"),
    "read_slot_minus_1": ("fail", "rows wrong"),
    "read_slot_num_slots": ("fail", "rows wrong"),
    "read_past_indices": ("fail", "rows wrong"),
    "read_everything_selected": ("fail", "rows wrong"),
    "skip_one_element": ("fail", "written: .* was not written"),
    "skip_lse": ("fail", "written: .* was not written"),
    "nothing": ("fail", "written: .* was not written"),
    "nondeterministic": ("fail", "rows wrong"),  # it declares no determinism
    "slips_when_timed": ("fail", "rows wrong"),
    "every_other": ("fail", "written: .* was not written"),
    "wrong_first": ("fail", "rows wrong"),
    "wrong_first_undeclared": ("fail", "rows wrong"),
    "copies_workspace": ("fail", "rows wrong"),
    "slow": ("fail", "rows wrong"),
    "stop_worker": ("timeout", "no answer within 1 s"),
    "needs_file": ("crash", "SIGABRT"),
    "lower_limits": ("crash", "changed the process that it runs in: RLIMIT_AS was lowered to 0, RLIMIT_FSIZE was lowered to 0"),
    "lower_memory": ("crash", "RLIMIT_AS was lowered to 0"),
    "leave_alarm": ("crash", "a timer was left"),
    "leave_profiler": ("crash", "a timer was left"),
    "leave_timer": ("crash", "a timer was left"),
    "fork_unheard": ("crash", "left a child process behind"),
    "change_schedule": ("fail", "rows wrong"),  # put back
    "answer_schedule": ("fail", "rows wrong"),
    "change_rounding": ("fail", "rows wrong"),  # put back
    "catch_faults": ("crash", "the handler of SIGSEGV was replaced"),
    "leak_mappings": ("crash", "no more memory can be mapped"),
    "leak_descriptors": ("crash", "no descriptor is left"),
    "signal_parent": ("crash", "sent SIGTERM to the process that runs the harness"),
    "signal_parent_from_child": ("crash", "sent SIGUSR1 to the process that runs the harness"),
    "truncate_fds": ("crash", "SIGBUS in returning the judged rows"),
    "wait_for_file": ("timeout", "no answer within 1 s"),
    "answer_rounding": ("fail", "rows wrong"),
    "fault_late": ("fail", "rows wrong"),  # what it does later ends its worker, and stderr says whose it was
    "steal_requests": ("fail", "rows wrong"),  # a fresh worker is asked
    "steal_a_byte": ("fail", "rows wrong"),
    "hold_stdout": ("timeout", "no answer within 1 s in flushing what was printed"),
    "move_away": ("fail", "rows wrong"),
    "huge_workspace": ("oom", "workspace: 1125899906842624 bytes"),
    "negative_workspace": ("crash", "workspace_bytes returned -5"),
    "declines": ("unsupported", "declines everything"),
    "abort_in_supports": ("crash", "SIGABRT in supports"),
}
CASES = ["decode b=1 s_q=1 h_q=2 s_kv=90 topk=20", "decode b=1 s_q=2 h_q=2 s_kv=90 topk=20 pattern=padded"]
HANGS = ("loop", "sleep", "stop_worker", "wait_for_file", "steal_requests", "hold_stdout")  # a second is enough for these; others may be slow on a busy machine
FINDINGS = re.compile(r"(guards|inputs|written): ")


def said(detail):
    """The finding that the behaviour is named after, where one stands behind the wrong numbers."""
    found = FINDINGS.search(detail)
    return (detail[found.start():] if found else detail).split("; poison: ")[0]


def rows_of(build, kernels, timeout_s):
    with tempfile.TemporaryDirectory() as out:
        command = [build / "smla", "check", "--plugin", build / "harness/testing/libsmla_hostile.so", "--case-timeout", str(timeout_s),
                   "--threads", "1", "--progress", "none", "-q", "--out", out]
        for case in CASES:
            command += ["--case", case]
        for kernel in kernels:
            command += ["--kernel", kernel]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 1:
            sys.exit(f"exit {ran.returncode}, expected 1\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        folder = pathlib.Path(out) / "cpu_x86_64"
        summary = (folder / "summary.md").read_text(encoding="utf-8")
        for where, text in (("stdout", ran.stdout), ("summary.md", summary)):
            strange = sorted({c for c in text if c < " " and c != "\n" or c == "\x7f"})
            if strange:
                sys.exit(f"{where} holds control characters {strange}")
        with open(folder / "accuracy.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        for row in rows:  # each reason on one line, whatever is in it
            if row["status"] == "crash" and f": {row['detail']}" not in summary.replace("\\|", "|").replace("&lt;", "<"):
                sys.exit(f"summary.md does not hold on one line: {row['detail']}")
        return rows


def kernels_of(build):
    listed = subprocess.run([build / "smla", "list", "kernels", "--plugin", build / "harness/testing/libsmla_hostile.so"], capture_output=True,
                            text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line.endswith(" misbehaves")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    rows = rows_of(build, HANGS, 1) + rows_of(build, [kernel for kernel in EXPECTED if kernel not in HANGS], 60)
    wrong = [f"{kernel}: nothing is expected of it here" for kernel in sorted(kernels_of(build) - set(EXPECTED))]
    print("| kernel | status | said |\n|---|---|---|")
    for kernel, (status, text) in EXPECTED.items():
        of_kernel = [row for row in rows if row["kernel"] == kernel]
        details = [row["detail"] for row in of_kernel if row["status"] == status]
        line = next((said(d) for d in details if re.search(text, d)), said(details[0]) if details else "")
        print(f"| {kernel} | {'/'.join(sorted({row['status'] for row in of_kernel}))} | {line.replace('|', chr(92) + '|')[:160]} |")
        if {row["case"] for row in of_kernel} != set(CASES):
            wrong.append(f"{kernel}: {len({row['case'] for row in of_kernel})} of {len(CASES)} cases have rows")
        if not any(re.search(text, d) for d in details):
            wrong.append(f"{kernel}: no row of status {status} says '{text}': {[(r['status'], r['detail'][:300]) for r in of_kernel]}")
    for line in wrong:
        print("WRONG: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
