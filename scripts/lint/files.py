#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""files.py spdx|top_level TOP

   spdx:      every source file has one SPDX line, among its first three lines.
   top_level: nothing stands at the top but the rooms, the root build files, README, LICENSE and dot-files.
   Files are those that git tracks or would track.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOMS = {"cases", "reference", "kernels", "harness", "reports", "scripts"}
TOP_FILES = {"CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE"}
SOURCES = {".h", ".cc", ".c", ".cu", ".cuh", ".inc", ".cmake", ".sh", ".py", ".toml", ".yml"}
TAG = re.compile(r"^(//|#|/\*|<!--)\s*SPDX-License-Identifier: Apache-2\.0")


def files(top):
    listed = subprocess.run(["git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True).stdout
    return [name for name in listed.decode().split("\0") if name and (top / name).exists()]


def spdx(top):
    for name in files(top):
        path = top / name
        lines = path.read_text(errors="replace").splitlines() if path.suffix in SOURCES or path.name == "CMakeLists.txt" or name == ".ci/run" else []
        tags = [i for i, line in enumerate(lines) if TAG.match(line)]
        if lines and (len(tags) != 1 or tags[0] > 2):
            yield f"{name}: {len(tags)} SPDX lines" if len(tags) != 1 else f"{name}: the SPDX line is line {tags[0] + 1}"


def top_level(top):
    for name in sorted({name.split("/")[0] for name in files(top)}):
        if name not in ROOMS | TOP_FILES and not name.startswith("."):
            yield f"{name}: does not belong at the top level"
    for name in sorted(ROOMS | TOP_FILES):
        if not (top / name).exists():
            yield f"{name}: missing"
    for room in sorted(ROOMS):
        if not (top / room / "README.md").exists():
            yield f"{room}/README.md: missing"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("spdx", "top_level"))
    parser.add_argument("top", type=pathlib.Path)
    words = parser.parse_args()
    job, top = words.job, words.top.resolve()
    if not (top / ".git").exists():
        print("not a git checkout: which files belong to it cannot be told")
        return 77
    wrong = list({"spdx": spdx, "top_level": top_level}[job](top))
    print("\n".join(wrong) or f"{job}: nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
