#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh TOP: every C++ and CUDA source is as clang-format 14 leaves it (other versions format otherwise). Exit 77: that version is not here.
set -euo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
cd "$1"
tool=$(command -v clang-format-14 || command -v clang-format || true)
case "$($tool --version 2>/dev/null)" in
  *version\ 14.*) ;;
  *) echo "clang-format 14 is not here: formatting not checked"; exit 77 ;;
esac
git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' | xargs -r -n 40 -P 2 "$tool" --dry-run --Werror
