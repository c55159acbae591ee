#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program, the Python module and what they load in one folder, to be run on a machine that has only a GPU driver: built where the compilers are, run where the GPU is.
#   scripts/bundle.sh BUILD_DIR [OUT]      OUT: a folder (default: bundle), replaced
# Left to the target: the C library and the NVIDIA driver. cudart is linked in; everything else (libstdc++, fmt, Google Benchmark) stands beside the program, which
# looks there first (RPATH $ORIGIN). Prints the newest version of the C library's symbols that the bundle needs.
set -euo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
build=${1?bundle.sh needs a build folder} out=${2-bundle}
program=$build/smla
[ -x "$program" ] || { echo "bundle: $program is not there: cmake --build $build --target smla" >&2; exit 3; }
readelf -d "$program" | grep -Eq 'R(UN)?PATH.*\$ORIGIN' || { echo "bundle: $program has no RPATH \$ORIGIN" >&2; exit 3; }

from_target='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libcuda|libnvidia-ml)\.so'
missing=$(ldd "$program" | sed -n 's/^\s*\(\S*\) => not found/\1/p')
[ -z "$missing" ] || { echo "bundle: not found on this machine: $missing" >&2; exit 3; }
staging=$(mktemp -d "$(dirname "$out")/.bundle.XXXXXX")
trap 'rm -rf "$staging"' EXIT
cp "$program" "$staging/smla"
cp "$build/libsmla.so" "$staging/"   # needs what the program needs
cp -r "$build/python" "$staging/python"
ldd "$program" | sed -n 's/^\s*\(\S*\) => \(\/\S*\) .*/\1 \2/p' | while read -r name path; do
  [[ $name =~ $from_target ]] || cp -L "$path" "$staging/$name"
done
chmod 755 "$staging"
rm -rf "$out"
mv "$staging" "$out"
trap - EXIT

newest=$(for file in "$out"/smla "$out"/*.so*; do objdump -T "$file"; done | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
echo "$out: $(find "$out" -type f -printf '%f ')needs ${newest/_/ }"
