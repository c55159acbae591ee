#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test of scripts/ci: the workflow calls nothing but what stands there, and both jobs do what they say on a small case: green where nothing changed, red on an injected
# slowdown of 5 %, a wrong kernel, and a verdict that was lost.
#   scripts/ci_test.sh BUILD
set -euo pipefail
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
    'find reports/out -name gate.md -exec cat {} + >> "$GITHUB_STEP_SUMMARY"') ;;
    *) echo "FAIL  the workflow runs what no test does: $command"; failures=$((failures + 1)) ;;
  esac
done < <(grep -E '^ *- run: ' "$top/scripts/ci/github_actions.yml")

# What a committed baseline holds, the job without flags runs: else every pair of it would be lost.
for suite in $(python3 -c '
import csv, sys
print(*sorted({row["suite"] for path in sys.argv[1:] for row in csv.DictReader(open(path))}))' "$top"/reports/baselines/*/accuracy.csv "$top"/reports/baselines/*/throughput.csv); do
  grep -qF -- "--suite $suite " "$top/scripts/ci/gpu.sh" || { echo "FAIL  gpu.sh does not run suite $suite of the baseline"; failures=$((failures + 1)); }
done

case_line='decode b=2 s_q=1 h_q=8 s_kv=256 topk=64'
run=(--case "$case_line" --kernel cpu_naive --max-time 0.05)
smla=$build/smla reports=$work/out/cpu_x86_64 base=$work/baseline/cpu_x86_64
wants 0 'the job without a GPU' "$top/scripts/ci/cpu.sh" --build "$build" --out "$work/out" --case "$case_line" --max-time 0.05
rm -r "$work/out"

# The gate, through the job for GPUs, over CPU kernels: it is told which.
wants 0 'a run without a baseline is told, not gated' "$top/scripts/ci/gpu.sh" --build "$build" --out "$work/out" --baseline "$work/baseline/none" "${run[@]}"
says 'no reviewed baseline'
# Times of a test machine mean nothing, so the report is given quiet ones; the baseline is a copy.
steady() {  # FACTOR < throughput.csv
  python3 -c '
import csv, sys
rows = list(csv.DictReader(sys.stdin)); out = csv.DictWriter(sys.stdout, rows[0].keys(), lineterminator="\n"); out.writeheader()
for row in rows:
    row["samples"] = "40"
    for column, share in (("min", .99), ("q1", .998), ("median", 1), ("q3", 1.002), ("p95", 1.01), ("ci95_lo", .999), ("ci95_hi", 1.001)):
        row["time_us_" + column] = "%.9g" % (100 * share * float(sys.argv[1]))
    out.writerow(row)' "$1"
}
gate() { "$smla" gate --baseline "$base" --out "$reports" --markdown "$work/gate.md" --junit "$work/gate.xml" "$@"; }
rm "$reports/samples.csv"
steady 1 < "$reports/throughput.csv" > "$work/t" && cp "$work/t" "$reports/throughput.csv"
wants 0 'smla gate --update-baseline' gate --update-baseline
wants 0 'GATE: nothing changed' gate
says '# Gate green'
steady 1.05 < "$work/t" > "$reports/throughput.csv"
wants 2 'GATE: an injected slowdown of 5 %' gate
says 'slower'
grep -q '<failure type="slower"' "$work/gate.xml" || { echo 'FAIL  JUnit does not say slower'; failures=$((failures + 1)); }
cp "$work/t" "$reports/throughput.csv"
"$smla" check --case "$case_line" --kernel fake_zeros --progress none --out "$work/out" > /dev/null 2>&1 ||
  "$smla" check --case "$case_line" --kernel fake_mean_v --progress none --out "$work/out" > /dev/null 2>&1 || true
wants 1 'GATE: an injected wrong kernel' gate
says 'not_passed'
# A verdict lost: the kernel now declines what it passed.
python3 - "$reports/accuracy.csv" <<'PY'
import csv, sys
path = sys.argv[1]
rows = [row for row in csv.DictReader(open(path)) if row["kernel"] == "cpu_naive"]
for row in rows:
    row["status"], row["detail"] = "unsupported", "h_q = 8 is not implemented"
with open(path, "w", newline="") as file:
    out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n"); out.writeheader(); out.writerows(rows)
PY
wants 1 'GATE: a verdict that was lost' gate
says 'verdict_lost'
cat > "$base/known_issues.toml" <<'TOML'
[[issue]]
kernel = "cpu_naive"
reason = "h_q = 8 is being rewritten"
TOML
wants 0 'GATE: the same, listed as a known issue' gate
exit $((failures > 0))
