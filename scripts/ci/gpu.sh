#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CI job for a machine with a GPU: accuracy and throughput of the built-in kernels, then both against the reviewed baseline of this architecture.
#   scripts/ci/gpu.sh [--build DIR] [--out DIR] [--baseline DIR] [flags of `smla run`; none: what the baselines hold, regression checked and throughput timed]
# Writes OUT/<arch>/ (of several cards OUT/gpuN/<arch>/): the reports; gate.md, fit for a pull request; gate.xml, JUnit. Exit status: of the run if its results are red, else of the gate.
# With --gpu all cards share the cases, and each is held against its baseline by itself: give --baseline one of such a share.
# A card without a reviewed baseline is run and told, not gated: commit its reports with `smla gate --update-baseline`.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
build='' out=$top/reports/out baseline=''
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2?--build needs a folder}; shift 2 ;;
    --out) out=${2?--out needs a folder}; shift 2 ;;
    --baseline) baseline=${2?--baseline needs a folder}; shift 2 ;;
    -h|--help) sed -n '3,7s/^# //p' "$0"; exit 0 ;;
    *) break ;;
  esac
done
[ -n "$build" ] || build=$("$top/scripts/setup.sh" release smla)

status=0
if [ $# -gt 0 ]; then
  "$build/smla" run --progress plain --timing both --out "$out" "$@" || status=$?
else
  "$build/smla" check --progress plain --suite regression --out "$out" || status=$?
  "$build/smla" bench --progress plain --suite throughput --timing both --out "$out" || status=$((status == 0 ? $? : status))
fi
gated=0
for run in "$out"/*/ "$out"/gpu*/*/; do  # one card: OUT/<arch>; several: OUT/gpuN/<arch>
  arch=$(basename "$run")
  reviewed=${baseline:-$top/reports/baselines/$arch}
  [ -f "$run/accuracy.csv" ] || continue
  if [ ! -f "$reviewed/accuracy.csv" ]; then
    printf 'gpu.sh: no reviewed baseline for %s: not gated\n' "$arch" >&2
    continue
  fi
  "$build/smla" gate --baseline "$reviewed" --out "$run" --markdown "$run/gate.md" --junit "$run/gate.xml" || gated=$?
done
[ $status -eq 0 ] || exit $status
exit $gated
