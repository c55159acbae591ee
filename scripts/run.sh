#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to reports: sets up (setup.sh), then judges and times every built-in kernel.
#   scripts/run.sh [--no-install] [--build DIR] [flags of `smla run`; none: --suite quick]
# Exit status: that of `smla run`; 3 if something is lacking.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
setup=()
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) setup+=("$1"); shift ;;
    --build) setup+=("$1" "${2?--build needs a folder}"); shift 2 ;;
    -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || set -- --suite quick

# Only the architectures of the GPUs that are here: the others would cost minutes.
if [ -z "${SMLA_CUDA_ARCHS-}" ] && command -v nvidia-smi >/dev/null; then
  archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    sed -e 's/^9\.0$/90a/' -e 's/^10\..*$/100f/' -e 's/^12\..*$/120f/' -e 's/^8\.9$/89/' -e 's/^8\..*$/80/' | sort -u | paste -sd';') || archs=
  [ -z "$archs" ] || export SMLA_CUDA_ARCHS=$archs
fi

build=$("$top/scripts/setup.sh" "${setup[@]}" release smla)
command -v nvidia-smi >/dev/null || printf 'run: no GPU here (nvidia-smi not found): the CPU kernels only\n' >&2
exec "$build/smla" run "$@"
