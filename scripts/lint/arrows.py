#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes and links between rooms go one way: cases < reference, kernels, reports < harness; no CUDA header under cases, reference or reports.

   arrows.py TOP    checks the tree, then proves that it would notice: one wrong line for each arrow is planted in a copy, and each must be found.
"""
import argparse
import pathlib
import re
import shutil
import sys
import tempfile

MAY_USE = {
    "cases": {"cases"},
    "reference": {"reference", "cases"},
    "kernels": {"kernels", "cases"},
    "reports": {"reports", "cases"},
    "harness": {"harness", "reference", "kernels", "reports", "cases"},
}
WITHOUT_CUDA = {"cases", "reference", "reports"}
ELSEWHERE = {"smla_catch.h", "smla_fuzz.h", "git_stamp.h"}  # of scripts/cmake/include, and generated
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LINK = re.compile(r"smla::(\w+)")
CUDA = re.compile(r"(.*\.cuh|(cuda|cublas|cublasLt|curand|nvml|nvrtc|nvtx|cupti|vector_types|device_launch)[\w/]*\.h|(cub|thrust|cutlass|cute|cuda)/.*|mma\.h|cooperative_groups.*)$")


def wrong_lines(top):
    """(file, line number, why) of every line that goes the wrong way."""
    for room, allowed in MAY_USE.items():
        for file in sorted((top / room).rglob("*")):
            is_cmake = file.name == "CMakeLists.txt" or file.suffix == ".cmake"
            if not is_cmake and file.suffix not in (".h", ".cc", ".cu", ".cuh", ".c", ".inc"):
                continue
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                where = file.relative_to(top), number
                if is_cmake:
                    for target in LINK.findall(line.split("#")[0]):
                        if target in MAY_USE and target not in allowed:
                            yield *where, f"{room} may not link {target}"
                    continue
                match = INCLUDE.match(line)
                if not match:
                    continue
                quote, header = match.groups()
                first = header.split("/")[0]
                if first in MAY_USE and "/" in header:
                    if first not in allowed:
                        yield *where, f"{room} may not include {first}"
                elif quote == '"' and header not in ELSEWHERE:
                    yield *where, f'"{header}" is not written from the project root'
                if room in WITHOUT_CUDA and CUDA.match(header):
                    yield *where, f"{room} may not include the CUDA header {header}"


def plants():
    """(room, file, line) of one wrong line for each arrow."""
    for room, allowed in MAY_USE.items():
        for other in sorted(MAY_USE.keys() - allowed):
            yield room, "planted.h", f'#include "{other}/x.h"'
            yield room, "planted.cc", f"#  include <{other}/x.h>"
            yield room, "planted.cmake", f"target_link_libraries(smla_{room} PUBLIC smla::{other})"
        yield room, "planted.cc", '#include "../x.h"'
    for room in WITHOUT_CUDA:
        for header in ("<cuda_runtime.h>", "<cuda_fp16.h>", "<cub/cub.cuh>", '"kernels/common/x.cuh"', "<cooperative_groups.h>"):
            yield room, "planted.cc", f"#include {header}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("top", type=pathlib.Path)
    top = parser.parse_args().top.resolve()
    wrong = list(wrong_lines(top))
    for file, number, why in wrong:
        print(f"{file}:{number}: {why}")
    if wrong:
        return 1
    proofs = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for room in MAY_USE:
            shutil.copytree(top / room, copy / room)
        for room, name, line in plants():
            planted = copy / room / name
            planted.write_text(f"// planted\n{line}\n" if not name.endswith("cmake") else f"# planted\n{line}\n")
            found = [(str(file), number) for file, number, _ in wrong_lines(copy)]
            planted.unlink()
            if (f"{room}/{name}", 2) not in found:
                print(f"not noticed in {room}/{name}: {line}")
                return 1
            proofs += 1
    print(f"no include or link goes the wrong way; {proofs} planted ones were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
