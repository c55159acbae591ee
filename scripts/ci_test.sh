#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test of scripts/ci: the workflow calls nothing but what stands there, and both jobs do what they say on a small case: green where nothing changed, red on an injected
# slowdown of 5 %, a wrong kernel, and a verdict that was lost.
#   scripts/ci_test.sh BUILD            over cpu_naive, with times that are made up: those of a test machine mean nothing
#   scripts/ci_test.sh BUILD --gpu      over sparse_mma, with the times of two runs on the GPU that is here; some 20 s
set -euo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
top=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1?scripts/ci_test.sh BUILD}" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
failures=0
wants() {  # STATUS WHAT COMMAND...: what it printed goes on, and to $work/said
  local want=$1 what=$2 got=0; shift 2
  "$@" > "$work/said" 2>&1 || got=$?
  sed 's/^/    /' "$work/said"
  if [ $got -eq "$want" ]; then printf 'ok    %s (exit status %s)\n' "$what" "$got"
  else printf 'FAIL  %s: exit status %s, not %s\n' "$what" "$got" "$want"; failures=$((failures + 1)); fi
}
says() { grep -qF "$1" "$work/said" || { printf 'FAIL  not said: %s\n' "$1"; failures=$((failures + 1)); }; }

# What the workflow runs is a script of this folder, or one of the two lines that no script can say.
while read -r line; do
  command=${line#- run: }
  case "$command" in
    scripts/ci/*.sh)
      [ -x "$top/$command" ] || { echo "FAIL  $command is not there"; failures=$((failures + 1)); }
      grep -qF "\`$(basename "$command")\`" "$top/scripts/README.md" || { echo "FAIL  scripts/README.md does not know $command"; failures=$((failures + 1)); }
      ;;
    'cat reports/out/gate_*.md >> "$GITHUB_STEP_SUMMARY"') ;;
    *) echo "FAIL  the workflow runs what no test does: $command"; failures=$((failures + 1)) ;;
  esac
done < <(grep -E '^ *- run: ' "$top/scripts/ci/github_actions.yml")

# What a committed baseline holds, the job without flags runs: else every pair of it would be lost.
for suite in $(python3 -c '
import csv, sys
print(*sorted({row["suite"] for path in sys.argv[1:] for row in csv.DictReader(open(path))}))' "$top"/reports/baselines/*/accuracy.csv "$top"/reports/baselines/*/throughput.csv); do
  grep -qE -- "--suite $suite( |$)" "$top/scripts/ci/gpu.sh" || { echo "FAIL  gpu.sh does not run suite $suite of the baseline"; failures=$((failures + 1)); }
done

smla=$build/smla
if [ "${2-}" = --gpu ]; then
  kernel=sparse_mma wrong=mut_gpu_workspace_assumed_zero case_line='decode b=128 s_q=1 h_q=16 s_kv=32768 topk=2048'
  flags=(--min-samples 60 --gpu 0)
else
  kernel=cpu_naive wrong=fake_zeros case_line='decode b=2 s_q=1 h_q=8 s_kv=256 topk=64'
  flags=(--max-time 0.05)
  wants 0 'the job without a GPU' "$top/scripts/ci/cpu.sh" --build "$build" --out "$work/out" --case "$case_line" --max-time 0.05
  rm -r "$work/out"
  wants 5 'the job for GPUs where there is none' env CUDA_VISIBLE_DEVICES= "$top/scripts/ci/gpu.sh" --build "$build" --out "$work/out"
fi
run=(--case "$case_line" --kernel "$kernel" "${flags[@]}")

# The gate, through the job for GPUs: it is told over which kernel.
wants 0 'a run without a baseline is told, not gated' "$top/scripts/ci/gpu.sh" --build "$build" --out "$work/out" --baseline "$work/baseline/none" "${run[@]}"
says 'no reviewed baseline'
reports=$(echo "$work"/out/*) base=$work/baseline/$(basename "$reports")
scaled() {  # FACTOR: the times of throughput.csv and samples.csv
  python3 - "$1" "$reports" <<'PY'
import csv, os, sys
for path, columns in (("throughput.csv", ["time_us_" + c for c in "min q1 median q3 p95 ci95_lo ci95_hi".split()]), ("samples.csv", ["time_us"])):
    path = os.path.join(sys.argv[2], path)
    if not os.path.exists(path):
        continue
    rows = list(csv.DictReader(open(path)))
    for row in rows:
        row.update({c: "%.9g" % (float(row[c]) * float(sys.argv[1])) for c in columns})
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n"); out.writeheader(); out.writerows(rows)
PY
}
gate() { "$smla" gate --baseline "$base" --out "$work/out" --markdown "$work/gate.md" --junit "$work/gate.xml"; }
review() { "$smla" gate --baseline "$base" --out "$work/out" --update-baseline; }
if [ "$kernel" = cpu_naive ]; then  # quiet times, made up
  rm "$reports/samples.csv"
  python3 - "$reports/throughput.csv" <<'PY'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
for row in rows:
    row["samples"] = "40"
    for column, time in (("min", 99), ("q1", 99.8), ("median", 100), ("q3", 100.2), ("p95", 101), ("ci95_lo", 99.9), ("ci95_hi", 100.1)):
        row["time_us_" + column] = str(time)
with open(sys.argv[1], "w", newline="") as file:
    out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n"); out.writeheader(); out.writerows(rows)
PY
  wants 0 'smla gate --update-baseline' review
  wants 0 'GATE: nothing changed' gate
else
  wants 0 'smla gate --update-baseline' review
  rm -r "$work/out"
  wants 0 'GATE: nothing changed, a second run' "$top/scripts/ci/gpu.sh" --build "$build" --out "$work/out" --baseline "$base" "${run[@]}"
fi
says '# Gate green'
cp -r "$reports" "$work/quiet"
scaled 1.05
wants 2 'GATE: an injected slowdown of 5 %' gate
says 'slower'
grep -q '<failure type="slower"' "$work/gate.xml" || { echo 'FAIL  JUnit does not say slower'; failures=$((failures + 1)); }
cp "$work"/quiet/*.csv "$reports"
"$smla" check --case "$case_line" --kernel "$wrong" --progress none --out "$work/out" > /dev/null 2>&1 || true
wants 1 'GATE: an injected wrong kernel' gate
says 'not_passed'
# A verdict lost: the kernel now declines what it passed.
python3 - "$reports/accuracy.csv" "$kernel" <<'PY'
import csv, sys
path = sys.argv[1]
rows = [row for row in csv.DictReader(open(path)) if row["kernel"] == sys.argv[2]]
for row in rows:
    row["status"], row["detail"] = "unsupported", "h_q = 8 is not implemented"
with open(path, "w", newline="") as file:
    out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n"); out.writeheader(); out.writerows(rows)
PY
wants 1 'GATE: a verdict that was lost' gate
says 'verdict_lost'
sed "s/KERNEL/$kernel/" > "$base/known_issues.toml" <<'TOML'
[[issue]]
kernel = "KERNEL"
reason = "h_q = 8 is being rewritten"
TOML
wants 0 'GATE: the same, listed as a known issue' gate
exit $((failures > 0))
