#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bundle_test.sh BUILD_DIR: the bundle runs from its own folder with its own libraries, elsewhere and without the build; built on Debian 12 it needs GLIBC 2.36 at most.
set -euo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$here/bundle.sh" "$1" "$folder/bundle" | tee "$folder/said"
mv "$folder/bundle" "$folder/moved"

# Every library that the target does not have is loaded from the bundle.
outside=$(env -i "$(command -v ldd)" "$folder/moved/smla" | grep '=>' | grep -v "$folder/moved/" | awk '{print $1}' | grep -Ev '^lib(c|m|dl|rt|pthread)\.so' || true)
[ -z "$outside" ] || { echo "loaded from outside the bundle: $outside"; exit 1; }
(cd / && env -i "$folder/moved/smla" list kernels >"$folder/kernels")
grep -q cpu_naive "$folder/kernels" || { echo "the bundle lists no kernel"; exit 1; }

python=$(python3 -c 'import sys; print(sys.executable)')
(cd "$folder" && env -i PYTHONPATH="$folder/moved/python" "$python" -B -c 'import smla; smla.Session("'"$here"'/../harness/python/examples/plain.py:plain", case="decode b=1 h_q=1 s_kv=4 topk=2", out="reports").close()') ||
  { echo "the bundle's Python module does not start a kernel"; exit 1; }

newest=$(sed 's/.*GLIBC //' "$folder/said")
. /etc/os-release
limit=2.36
if [ "${VERSION_CODENAME-}" != bookworm ]; then echo "built on ${PRETTY_NAME-another system}: it needs GLIBC $newest; the limit is for Debian 12 builds"; exit 0; fi
[ "$(printf '%s\n' "$newest" $limit | sort -V | tail -1)" = $limit ] || { echo "needs GLIBC $newest, more than $limit"; exit 1; }
