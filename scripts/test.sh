#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a verdict on the code: sets up (setup.sh), builds everything, runs every test. Tests that need a GPU say so and count as skipped without one.
#   scripts/test.sh [--no-install] [flags of ctest, e.g. -R reports or -L host]
# With nvcc every CUDA kernel is compiled, for every architecture. Exit status: ctest's; 3 if something is lacking.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
setup=()
case "${1-}" in
  --no-install) setup+=("$1"); shift ;;
  -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;;
esac
preset=host
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then preset=ci; fi
build=$("$top/scripts/setup.sh" "${setup[@]}" "$preset")
exec ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
