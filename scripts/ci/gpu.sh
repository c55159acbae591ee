#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CI job for a machine with a GPU: accuracy and throughput of the built-in kernels, then both against the reviewed baseline of this architecture.
#   scripts/ci/gpu.sh [--build DIR] [--out DIR] [--baseline DIR] [--gpu LIST|all] [flags of `smla run`; none: what the baselines hold, regression checked and throughput timed]
# Without flags GPU 0 is asked for: where there is none it ends with 5, not with a green run of the CPU kernels.
# Writes OUT/<arch>/, of several cards (--gpu all) OUT/gpuN/<arch>/: the reports; OUT/gate_<arch>.md, fit for a pull request, and OUT/gate_<arch>.xml, JUnit.
# Exit status: of the run if its results are red, else of the gate. The cards' shares are held against the baseline together.
# An architecture without a reviewed baseline is run and told, not gated: commit its reports with `smla gate --update-baseline`.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
build='' out=$top/reports/out baseline='' gpu=()
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2?--build needs a folder}; shift 2 ;;
    --out) out=${2?--out needs a folder}; shift 2 ;;
    --baseline) baseline=${2?--baseline needs a folder}; shift 2 ;;
    --gpu) gpu=(--gpu "${2?--gpu needs ordinals or all}"); shift 2 ;;
    -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;;
    *) break ;;
  esac
done
[ -n "$build" ] || build=$("$top/scripts/setup.sh" release smla)

status=0
keep() { "$@" || status=$((status == 0 ? $? : status)); }
[ $# -gt 0 ] || [ ${#gpu[@]} -gt 0 ] || gpu=(--gpu 0)
smla() { keep "$build/smla" "$@" "${gpu[@]}" --progress plain --out "$out"; }
if [ $# -gt 0 ]; then
  smla run --timing both "$@"
else
  timing=(--suite throughput --oracle-rows 64 --max-time 0.3)  # all rows are judged by `check`
  smla check --suite regression
  smla bench "${timing[@]}" --filter ^decode --timing both
  smla bench "${timing[@]}" --filter ^prefill --kernel 'sparse_*' --kernel virtual_block_table  # a call of `naive` takes up to a second there
fi
gated=0
for arch in $(find "$out" -mindepth 2 -maxdepth 3 -name accuracy.csv -printf '%h\n' | sed 's|.*/||' | sort -u); do
  reviewed=${baseline:-$top/reports/baselines/$arch}
  if [ ! -f "$reviewed/accuracy.csv" ]; then
    printf 'gpu.sh: no reviewed baseline for %s: not gated\n' "$arch" >&2
    continue
  fi
  "$build/smla" gate --baseline "$reviewed" --out "$out" --markdown "$out/gate_$arch.md" --junit "$out/gate_$arch.xml" || gated=$?
done
[ $status -eq 0 ] || exit $status
exit $gated
