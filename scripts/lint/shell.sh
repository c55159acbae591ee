#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shell.sh TOP: every shell script parses, and shellcheck finds no warning in it. Exit 77: shellcheck is not here (they did parse).
set -euo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
cd "$1"
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
for script in "${scripts[@]}"; do
  bash -n "$script"
  [ -x "$script" ] || { echo "$script: not executable"; exit 1; }
done
command -v shellcheck >/dev/null || { echo "shellcheck is not here: ${#scripts[@]} scripts parse, no more was checked"; exit 77; }
shellcheck --severity=warning "${scripts[@]}"
