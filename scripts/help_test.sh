#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# help_test.sh TOP: every script answers --help with its usage, whatever else this machine lacks, and does nothing.
set -uo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
top=$(cd "$1" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0 scripts=0
while read -r script; do
  scripts=$((scripts + 1))
  timeout 20 "$script" --help </dev/null >said 2>errors && grep -q "$(basename "$script")" said && [ ! -s errors ] && continue
  echo "${script#"$top"/} --help: $(head -3 said errors)"
  failures=$((failures + 1))
done < <(find "$top/scripts" -type f -perm -u+x | sort)
rm -f said errors
[ -z "$(ls)" ] || { echo "something was written: $(ls)"; failures=$((failures + 1)); }
echo "$scripts scripts, $failures without help"
[ $failures = 0 ] && [ $scripts -gt 10 ]
