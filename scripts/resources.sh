#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Registers, shared memory, stack and spills of every CUDA kernel and architecture, from ptxas's own report (kept by the build).
#   scripts/resources.sh BUILD_DIR             compares with reports/data/resources.csv
#   scripts/resources.sh BUILD_DIR --update    writes the rows of the architectures that this build has; those of others stay
# Fails on a spill, on a serialised wgmma, on more than 101,376 bytes of shared memory a block for sm_120, and, with the compiler that wrote the file,
# on any other figure. Exit 77: this build has no CUDA kernels.
set -euo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
build=$1 table=reports/data/resources.csv
mapfile -t kept < <(find "$build/kernels" -name '*.cu.o.ptxas' -path '*smla_cuda*' ! -path '*bringup*' ! -path '*mutants*' 2>/dev/null | sort)
if [ ${#kept[@]} -eq 0 ]; then echo "no CUDA kernels in $build: nothing to compare"; exit 77; fi
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER_VERSION[^0-9]*\([0-9.]*\).*/\1/p;s/^set(CMAKE_CUDA_COMPILER_VERSION "\(.*\)")/\1/p' "$build"/CMakeFiles/*/CMakeCUDACompiler.cmake | head -1)
new=$(mktemp)
trap 'rm -f "$new" "$new.dynamic" "$new.merged"' EXIT
"$build/smla_cuda_bringup" instances > "$new.dynamic"

if grep -l 'C75[0-9][0-9]' "${kept[@]}"; then echo "ptxas serialised wgmma in the files above"; exit 1; fi
{
  echo "nvcc,arch,object,kernel,registers,static_shared_bytes,dynamic_shared_bytes,stack_bytes,spill_bytes"
  for file in "${kept[@]}"; do
    object=${file%.cu.o.ptxas}
    object=${object#*.dir/}
    c++filt < "$file" | awk -v nvcc="$nvcc" -v object="$object" -v dynamic="$new.dynamic" '
      BEGIN { FS = " "; while ((getline line < dynamic) > 0) { split(line, d, ","); bytes[d[1]] = d[2] } }
      /Compiling entry function/ {
        arch = $0; sub(/.* for .sm_/, "sm_", arch); sub(/\047.*/, "", arch)
        kernel = $0; sub(/.*entry function \047/, "", kernel); sub(/\047 for .*/, "", kernel)
        sub(/^void /, "", kernel); gsub(/smla::|cuda::|\(anonymous namespace\)::/, "", kernel); gsub(/\([A-Za-z]+\)/, "", kernel); sub(/\(.*/, "", kernel); gsub(/[ "]/, "", kernel)
      }
      /bytes stack frame/ { stack = $1; spill = $5 + $9 }
      /Used [0-9]+ registers/ {
        registers = $0; sub(/.*Used /, "", registers); sub(/ .*/, "", registers)
        shared = 0
        if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH) + 0
        instance = object; sub(/.*\//, "", instance)
        gsub(/,/, ";", kernel)
        print nvcc "," arch "," object "," kernel "," registers "," shared "," bytes[instance] + 0 "," stack "," spill
      }'
  done | sort -t, -k3,3 -k4,4 -k2,2
} > "$new"

awk -F, 'NR > 1 && $9 > 0 { print "spill: " $0; bad = 1 }
         NR > 1 && $2 ~ /^sm_120/ && $6 + $7 > 101376 { print "more than 101376 bytes of shared memory: " $0; bad = 1 }
         END { exit bad }' "$new"
archs_of() { tail -n +2 "$1" | cut -d, -f2 | sort -u; }
if [ "${2:-}" = --update ]; then
  [ -f "$table" ] || head -1 "$new" > "$table"
  built=$(archs_of "$new" | paste -sd'|')
  { head -1 "$new"; { tail -n +2 "$new"; tail -n +2 "$table" | grep -vE "^[^,]*,($built)," || true; } | sort -t, -k3,3 -k4,4 -k2,2; } > "$new.merged"
  cp "$new.merged" "$table"
  echo "$table: $(($(wc -l < "$table") - 1)) rows, of this build $(($(wc -l < "$new") - 1))"
  exit 0
fi
[ -f "$table" ] || { echo "$table is missing: scripts/resources.sh $build --update"; exit 1; }
if ! tail -n +2 "$table" | cut -d, -f1 | grep -qxF "$nvcc"; then echo "written by another nvcc than $nvcc: limits checked, figures not compared"; exit 0; fi
# What only one of the two has, an architecture, is not compared: its limits were checked above.
comm -13 <(archs_of "$table") <(archs_of "$new") | while read -r arch; do
  echo "$arch: not in $table, limits checked, figures not compared (--update from a build of every architecture adds it)"
done
archs=$(comm -12 <(archs_of "$table") <(archs_of "$new") | paste -sd'|')
[ -n "$archs" ] || exit 0
rows() { grep -E ",($archs)," "$1"; }
if ! diff <(rows "$table") <(rows "$new"); then
  echo "figures changed (< committed, > this build): read them, then scripts/resources.sh $build --update"
  exit 1
fi
echo "$(rows "$new" | wc -l) rows as committed"
