#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""readme_commands.py TOP BUILD: every ```sh block of README.md runs, in order, in an empty folder where build/host/smla is the program of BUILD.

   scripts/run.sh runs for real on that build, with one small case where the README gives it no flags; scripts/test.sh is what runs this, and is only parsed.
   Blocks with another tag (console, text) are not commands for here. Exit 1: a block failed, or there is none.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SMALL = "--case 'decode b=1 s_q=1 h_q=8 s_kv=256 topk=64' --kernel cpu_naive"


def lay_out(folder, top, build):
    for preset in ("host", "release"):
        (folder / "build" / preset).mkdir(parents=True)
        (folder / "build" / preset / "smla").symlink_to(build / "smla")
    (folder / "scripts").mkdir()
    for script in (top / "scripts").iterdir():
        if script.name not in ("run.sh", "test.sh"):
            (folder / "scripts" / script.name).symlink_to(script)
    for name in ("cases", "kernels", "reference", "harness"):
        (folder / name).symlink_to(top / name)
    (folder / "reports").mkdir()
    for entry in (top / "reports").iterdir():
        if entry.name != "out":
            (folder / "reports" / entry.name).symlink_to(entry)
    run = f"#!/bin/sh\n[ $# -gt 0 ] || set -- {SMALL}\nexec '{top}/scripts/run.sh' --no-install --build '{build}' \"$@\"\n"
    for name, text in (("run.sh", run), ("test.sh", f"#!/bin/sh\nexec bash -n '{top}/scripts/test.sh'\n")):
        (folder / "scripts" / name).write_text(text)
        (folder / "scripts" / name).chmod(0o755)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("top", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    words = parser.parse_args()
    top, build = words.top.resolve(), words.build.resolve()
    text = (top / "README.md").read_text()
    blocks = [(text.count("\n", 0, m.start()) + 1, m.group(1)) for m in re.finditer(r"^```sh\n(.*?)^```", text, re.M | re.S)]
    if not blocks:
        print("README.md has no ```sh block: nothing to run")
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lay_out(folder, top, build)
        environment = dict(os.environ, PATH=f"{build}:{os.environ['PATH']}")
        for line, block in blocks:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
            if done.returncode != 0:
                print(f"README.md:{line}: exit status {done.returncode}\n{block}{done.stdout[-3000:]}{done.stderr[-3000:]}")
                return 1
            print(f"README.md:{line}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
