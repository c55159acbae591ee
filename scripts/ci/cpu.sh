#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CI job for a machine without a GPU: every test, then a run of a suite into OUT whose results must be green.
#   scripts/ci/cpu.sh [--build DIR] [--out DIR] [flags of `smla run`; none: --suite quick]
# Exit status: that of the first step that fails. Times of a shared machine are reported, never gated.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
build='' out=$top/reports/out
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2?--build needs a folder}; shift 2 ;;
    --out) out=${2?--out needs a folder}; shift 2 ;;
    -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || set -- --suite quick
if [ -z "$build" ]; then
  "$top/scripts/test.sh"
  build=$("$top/scripts/setup.sh" release smla)
fi
exec "$build/smla" run --progress plain --kernel 'cpu_*' --out "$out" "$@"
