#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the parsers with libFuzzer, one after the other; new inputs that reach new code stay in build/fuzz/corpus, findings in build/fuzz/findings.
#   scripts/fuzz.sh [--seconds N] [TARGET...]      default: 60 seconds each, every target (see `scripts/fuzz.sh --list`)
#   scripts/fuzz.sh --merge                        adds to scripts/fuzz/ what reaches code that the committed corpora do not
# Needs clang and its runtime (Debian: clang libclang-rt-14-dev). Exit 1: a finding, with the file that reproduces it. Exit 77: no clang.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=60 merge=no list=no
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds=${2?--seconds needs a number}; shift 2 ;;
    --merge) merge=yes; shift ;;
    --list) list=yes; shift ;;
    -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;;
    -*) echo "fuzz: unknown flag $1 (known: --seconds N, --merge, --list, --help)" >&2; exit 3 ;;
    *) break ;;
  esac
done
command -v clang++ >/dev/null || { echo "fuzz: no clang++ here (Debian: clang libclang-rt-14-dev)" >&2; exit 77; }
mapfile -t known < <(find cases kernels reference reports harness -name '*_fuzz.cc' | sed 's/\.cc$//; s,/,.,g' | sort)
[ $list = no ] || { printf '%s\n' "${known[@]}"; exit 0; }
[ $# -gt 0 ] || set -- "${known[@]}"

cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "$@"
for target in "$@"; do
  committed=scripts/fuzz/$target corpus=build/fuzz/corpus/$target findings=build/fuzz/findings/$target
  mkdir -p "$corpus" "$findings" "$committed"
  dictionary=scripts/fuzz/$target.dict
  flags=(-print_final_stats=1 -timeout=10 -rss_limit_mb=4096 -artifact_prefix="$findings/")
  [ ! -f "$dictionary" ] || flags+=(-dict="$dictionary")
  if [ $merge = yes ]; then
    "build/fuzz/fuzz/$target" -merge=1 -max_len=4096 "$committed" "$corpus"
  else
    echo "== $target for $seconds s"
    options=
    # The CSV reader allocates 48 MiB a file: poisoning that costs 20 ms an input, a fiftieth of the speed.
    [ "$target" != reports.csv_fuzz ] || options=quarantine_size_mb=1:poison_heap=0
    ASAN_OPTIONS=$options "build/fuzz/fuzz/$target" "${flags[@]}" -max_total_time="$seconds" "$corpus" "$committed" 2>"build/fuzz/$target.log" || {
      tail -40 "build/fuzz/$target.log"
      echo "fuzz: $target: finding, see $findings and build/fuzz/$target.log"
      exit 1
    }
    grep -E '^stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)' "build/fuzz/$target.log"
  fi
done
