#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the host tests under sanitizers, each from a build of its own.
#   scripts/host_sanitizers.sh [asan|tsan]... [-- flags of ctest]
# asan: AddressSanitizer and UndefinedBehaviorSanitizer, every host test. tsan: ThreadSanitizer, the tests of oracle, generators and CPU kernels (what has threads).
# harness.python comes last, where no flags are given: Python is not built so, has the runtime preloaded, and its leaks are not ours. Exit status: the first ctest that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
presets=()
while [ $# -gt 0 ]; do
  case "$1" in
    asan|tsan) presets+=("$1"); shift ;;
    --) shift; break ;;
    -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;;
    *) echo "host_sanitizers: unknown $1 (known: asan, tsan, --help)" >&2; exit 3 ;;
  esac
done
[ ${#presets[@]} -gt 0 ] || presets=(asan tsan)

# A report ends the test. Workers are killed on purpose, so leaks are looked for only where a process ends by itself.
export ASAN_OPTIONS=abort_on_error=1:detect_leaks=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
for preset in "${presets[@]}"; do
  cmake --preset "$preset" >/dev/null
  cmake --build "build/$preset"
  skip='^scripts\.'  # those test the world around the program: preloaded clocks, memory limits
  [ "$preset" != asan ] || skip='^(scripts\.|harness\.python$)'
  select=(-L host -LE lint -E "$skip")
  [ "$preset" != tsan ] || select+=(-R '^(reference|kernels|cases)\.')
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "${select[@]}" "$@"
  if [ "$preset" != asan ] || [ $# -gt 0 ]; then continue; fi
  runtime="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so.6)"  # whoever throws must be loaded, too, when the runtime begins
  LD_PRELOAD=$runtime ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 ctest --test-dir "build/$preset" --output-on-failure -R '^harness\.python$'
done
