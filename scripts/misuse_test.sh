#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# misuse_test.sh BUILD_DIR: what people and machines do to the program. Prints a table: what was done, the exit status, the line that was printed.
# Exit 1: a status or a line is not the expected one, a refusal took more than one line, or something was left half-written.
set -uo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
build=$(cd "$1" && pwd)
top=$(cd "$(dirname "$0")/.." && pwd)
smla=$build/smla
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
arch=cpu_x86_64
small="--kernel cpu_naive --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20' --threads 1 --progress none"
several="--kernel cpu_naive --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20' --set seed=$(seq -s, 150) --threads 1 --progress none"

row() { printf '| %s | %s | %s |\n' "$1" "$2" "$(sed "s#$work/##g; s#$build/##g; s/|/\\\\|/g" <<<"$3" | cut -c1-240)"; }
wrong() { echo "WRONG: $1"; failures=$((failures + 1)); }

# expect WHAT STATUS REGEX COMMAND: the status, and a printed line that matches. A refusal (3, 4, 5) is one line and leaves nothing in OUT but what was there.
expect() {
  local what=$1 status=$2 regex=$3 got line before after
  shift 3
  before=$(listing)
  bash -c "$*" >said 2>&1
  got=$?
  line=$(grep -E -m1 -- "$regex" said) || line=$(head -1 said)
  row "$what" $got "$line"
  [ $got = "$status" ] || wrong "exit $got, expected $status: $*: $(cat said)"
  grep -Eq -- "$regex" said || wrong "nothing printed matches '$regex': $*: $(cat said)"
  case $got in 3 | 4 | 5)
    after=$(listing)
    [ "$(wc -l <said)" = 1 ] || [ "${many_lines-}" = yes ] || wrong "more than one line: $(cat said)"
    [ "$before" = "$after" ] || [ "${may_write-}" = yes ] || wrong "it wrote: $(diff <(echo "$before") <(echo "$after"))"
    ;;
  esac
}
listing() { find out -type f ! -name .lock -exec sha256sum {} + 2>/dev/null | sort; }
whole_rows() {  # every line of accuracy.csv is as wide as its header, and the file ends with a line feed
  "$smla" gate --baseline "$1/$arch" --out "$1/$arch" --accuracy-only >said 2>&1 || wrong "the report does not read: $(cat said)"
}

printf '| what | exit | said |\n|---|---|---|\n'

# Words that are not known: the nearest one is named.
expect 'unknown verb' 3 "'chekc'.*'check'" "$smla chekc"
expect 'unknown flag' 3 "'--kernell'.*'--kernel'" "$smla check --kernell cpu_naive --out out"
expect 'unknown suite' 3 "'quik'.*'quick'" "$smla check --suite quik --out out"
expect 'unknown kernel' 3 "'cpu_naiv'.*'cpu_naive'" "$smla check --kernel cpu_naiv --out out"
if ! "$smla" list kernels | grep ' cuda ' >/dev/null; then  # read to its end, or the pipe breaks
  expect 'a GPU kernel in a build without CUDA' 3 "'sparse_mma'.*this build has no CUDA" "$smla check --kernel sparse_mma --out out"
  expect 'defects of GPU kernels in a build without CUDA' 4 'this build has no CUDA' "$smla selftest --which --kernel 'mut_gpu_*' --out out"
  expect 'a GPU architecture in a build without CUDA' 4 'this build has no CUDA' "$smla list support --arch sm_90"
elif [ ! -e /dev/nvidiactl ]; then
  expect 'a GPU kernel without a GPU' 5 "'sparse_mma' needs a GPU" "$smla check --kernel sparse_mma --out out"
  expect 'defects of GPU kernels without a GPU' 5 "'mut_gpu_missing_barrier' needs a GPU" "$smla selftest --which --kernel 'mut_gpu_*' --out out"
fi
expect 'unknown check' 3 "'poisson'.*'poison'" "$smla check --checks poisson --out out"
expect 'unknown key' 3 "'topkk'.*'topk'" "$smla check --case 'decode b=1 topkk=3' --out out"
expect 'unknown value' 3 "kv_format.*'fp8_565'.*'fp8_656'" "$smla check --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20 kv_format=fp8_565' --out out"
expect 'unknown pattern' 3 "pattern.*'scatterd'.*'scattered'" "$smla check --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20 pattern=scatterd' --out out"
expect 'not a number' 3 "topk.*'many'" "$smla check --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=many' --out out"
expect 'contradictory case: dense, but topk < s_kv' 3 'pattern=dense: topk=20 is less than s_kv=90' "$smla check --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20 pattern=dense' --out out"
expect 'contradictory case: needle over arbitrary scales' 3 'scales=pow2' "$smla check --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20 kv_format=fp8_656 values=needle' --out out"
expect 'contradiction by --set' 3 "--set kv_format=fp16" "$smla check $small --set kv_format=fp16 --out out"
expect '3, of what?' 3 '--max-loss 3: write 3% or 300%' "$smla gate --baseline base --max-loss 3"
expect 'a flag of another verb' 3 "capture: unknown flag '--suite'" "$smla capture --suite quick"
expect 'nothing is left' 4 'no case is left' "$smla check $small --filter nothing_is_called_so --out out"
expect 'a time that is no number' 3 '--max-time nan: want seconds above 0' "$smla bench $small --max-time nan --out out"
expect 'a filter that would end the stack' 3 '40000 characters are too long for a regular expression' "$smla list cases --case decode --filter \"\$(printf '(%.0s' {1..20000}; printf ')%.0s' {1..20000})\""
expect 'a suite that never ends' 3 '/dev/zero: is no regular file' "$smla list cases --cases /dev/zero"

expect 'a product that never ends' 3 '--set page_size=.* makes [0-9]+ cases, more than 1000000' "$smla check --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20' --set seed=\$(seq -s, 2000) --set page_size=\$(seq -s, 2000) --out out"
expect 'a key set twice' 3 'topk is set twice.*topk=v1,v2' "$smla check $small --set topk=10 --set topk=20 --out out"
expect 'a shard of three numbers' 3 '--shard 1/2/3: want i/n' "$smla check $small --shard 1/2/3 --out out"
expect 'no time at all' 3 '--case-timeout 0: want seconds above 0, without a unit' "$smla check $small --case-timeout 0 --out out"
expect 'a control character' 3 '--out: character 4 is a control character \(code 27\)' "$smla check $small --out \$'bad\\e[31m'"
expect 'a word without end' 3 '^smla: --case .xxxx.* [.]{3} ' "$smla check --case \$(printf 'x%.0s' {1..50000}) --out out"
[ "$(wc -c <said)" -lt 1000 ] || wrong "$(wc -c <said) characters are told"
expect 'more than 2^30 entries' 3 'topk: 2147483647 is more than 2' "$smla check --case 'decode topk=2147483647' --checks all --out out"
expect 'a page too large' 3 'page_size=2147483647' "$smla check --case 'decode b=1 s_q=1 page_size=2147483647' --out out"
many_lines=yes expect 'lists that no machine holds' 77 "1 skipped" "$smla check --kernel cpu_naive --case 'decode b=1 s_q=256 h_q=2 s_kv=90 topk=1073741824' --checks all --progress none -v --out gone"
grep -q "lists and page table, here and in a worker, need 2199023268440 bytes" said || wrong "no size was told: $(cat said)"
many_lines=yes expect 'heads that no oracle holds' 77 'the oracle and the answers that it judges need [0-9]+ bytes' "$smla check --kernel cpu_naive --case 'decode b=1 s_q=1 h_q=1000000000 s_kv=90 topk=20' --progress none -v --out gone"
expect 'a capture of it' 5 'lists and page table.* need 2199023268440 bytes' "$smla capture 'decode b=1 s_q=256 h_q=2 s_kv=90 topk=1073741824' x.safetensors"
expect 'an index file that is no file' 3 '/proc/self/mem: Input/output error' "$smla check --kernel cpu_naive --case 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20 pattern=file:/proc/self/mem' --progress none --out gone"
expect 'a small stack (ulimit -s 64)' 5 'needs 1024 KiB of stack, ulimit -s allows 64' "ulimit -s 64; $smla check $small --out gone"
expect 'a handful of descriptors (ulimit -n 8)' 5 'needs 64 file descriptors, ulimit -n allows 8' "ulimit -n 8; $smla check $small --out gone"
cat >pipe.sh <<P
$smla list cases --cases <(printf '[[group]]\nname = "g"\nwhy = "w"\nbase = "decode b=1 s_q=1 h_q=2 s_kv=90 topk=20"\n')
P
expect 'a suite out of a pipe' 0 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20' "bash pipe.sh"

# Suites of one's own.
printf '[[group]]\nname = "g"\nwhy = "w"\nbase = "decode b=1 s_q=1 h_q=2 s_kv=90 topk=20"\n' >good.toml
sed 's/"g"/"g/' good.toml >syntax.toml
sed 's/^why/whyy/' good.toml >key.toml
sed 's/topk=20/topkk=20/' good.toml >case_key.toml
sed 's/"g"/3/' good.toml >type.toml
printf 'axes = { pattern = ["scatterd"] }\n' | cat good.toml - >value.toml
mkdir -p folder.toml
expect 'TOML syntax' 3 'syntax.toml:2' "$smla check --cases syntax.toml --out out"
expect 'TOML: unknown key' 3 "key.toml:3.*'whyy'.*'why'" "$smla check --cases key.toml --out out"
expect 'TOML: unknown key of a case' 3 "case_key.toml:1: group 'g'.*'topkk'.*'topk'" "$smla check --cases case_key.toml --out out"
expect 'TOML: unknown value on an axis' 3 "value.toml:1: group 'g'.*'scatterd'.*'scattered'" "$smla check --cases value.toml --out out"
expect 'TOML: wrong type' 3 'type.toml:2' "$smla check --cases type.toml --out out"
printf 'expect = "mistrustd"\n' | cat good.toml - >expect.toml
printf 'tags = ["gpu", "tiem"]\n' | cat good.toml - >tag.toml
printf 'expect = "unsupported:cpu_naiv"\n' | cat good.toml - >expect_kernel.toml
expect 'TOML: unknown word in expect' 3 "expect.toml:5: expect.*'mistrustd'.*'mistrusted'" "$smla check --cases expect.toml --out out"
expect 'TOML: unknown tag' 3 "tag.toml:5: tags.*'tiem'.*'time'" "$smla check --cases tag.toml --out out"
expect 'TOML: a kernel that is not here is expected to decline' 0 "'unsupported:cpu_naiv': no kernel here is called so" "$smla check --cases expect_kernel.toml --kernel cpu_naive --progress none --out gone"
expect 'TOML: a folder' 3 'folder.toml' "$smla check --cases folder.toml --out out"
expect 'TOML: no such file' 3 'nowhere.toml' "$smla check --cases nowhere.toml --out out"

# Plug-ins that are none.
printf 'not a library' >text.so
head -c 3000 "$build/example_plugin.so" >half.so
cp /usr/lib/x86_64-linux-gnu/libm.so.6 libm.so
expect 'plug-in: no such file' 3 'nowhere.so' "$smla check --plugin ./nowhere.so $small --out out"
expect 'plug-in: not a library' 3 'text.so' "$smla check --plugin ./text.so $small --out out"
expect 'plug-in: cut short' 3 'half.so' "$smla check --plugin ./half.so $small --out out"
expect 'plug-in: no entry point' 3 'libm.so.*smla_get_library' "$smla check --plugin ./libm.so $small --out out"
expect 'plug-in: a folder' 3 'folder.toml' "$smla check --plugin ./folder.toml $small --out out"
expect 'plug-in: dies while loading' 3 'SIGABRT in loading kernels' "SMLA_HOSTILE_LOAD=abort $smla check --plugin $build/harness/testing/libsmla_hostile.so $small --out out"

printf 'import time\ntime.sleep(1000)\n' >asleep.py
expect 'a Python file asleep at import' 3 'asleep.py:f: no answer within 10 s in loading' "$smla check --python asleep.py:f $small --case-timeout 1 --out out"

# Places that cannot be written.
expect 'OUT: an empty word' 3 '--out is given, but empty' "$smla check $small --out ''"
expect 'OUT: an empty word behind =' 3 '--out: .*missing' "$smla check $small --out="
touch file
expect 'OUT: a file is in the way' 3 '--out file' "$smla check $small --out file"
expect 'OUT: below a file' 3 '--out file/deep' "$smla check $small --out file/deep"
mkdir -p out/$arch/accuracy.csv
expect 'a folder where accuracy.csv should be' 3 'accuracy.csv' "$smla check $small --out out"
rm -r out && mkdir -p out/$arch && mkfifo out/$arch/accuracy.csv
expect 'a pipe where accuracy.csv should be' 3 'accuracy.csv: it is no regular file' "timeout 20 $smla check $small --out out"
rm out/$arch/accuracy.csv && mkfifo out/$arch/env.json
expect 'a pipe where env.json should be' 3 'env.json is no regular file' "timeout 20 $smla check $small --out out"
rm -r out && mkdir -p out/$arch/summary.md
expect 'a folder where summary.md should be' 3 'summary.md is a folder' "$smla check $small --out out"
rm -r out && mkdir -p out/$arch/peaks.csv
expect 'a folder where peaks.csv should be' 3 'peaks.csv is a folder' "$smla run $small --out out"
rm -r out && mkdir -p out/$arch && ln -s accuracy.csv out/$arch/accuracy.csv
expect 'a link that leads to itself' 3 'accuracy.csv: Too many levels of symbolic links' "$smla check $small --out out"
rm -r out
expect '--benchmark_out: no such folder' 3 'cannot write nowhere/b.json: No such file' "$smla run $small --out out --benchmark_out nowhere/b.json"
expect '--benchmark_out: a folder' 3 'cannot write folder.toml: Is a directory' "$smla bench $small --out out --benchmark_out folder.toml"
expect '--benchmark_format: an unknown word' 3 "'jsno'.*'json'" "$smla run $small --out out --benchmark_format jsno"
expect '--benchmark_filter: no regular expression' 3 "benchmark_filter '\\('" "$smla run $small --out out --benchmark_filter '('"
can_mount=no
unshare -rm true 2>/dev/null && can_mount=yes
in_mount() { printf 'unshare -rm bash -c %q' "$1"; }  # a mount of its own, gone with it
if [ $can_mount = yes ]; then
  mkdir -p ro disk
  expect 'OUT: a read-only mount (also for root)' 3 'ro.*Read-only file system' "$(in_mount "mount -t tmpfs -o ro none ro && exec $smla check $small --out ro/x")"
  many_lines=yes may_write=yes expect 'disk full in the middle: what was finished is whole, and it goes on' 0 'No space left on device; the rows before are whole' "$(in_mount "
    mount -t tmpfs -o size=200k none disk
    $smla check $several -q --out disk; full=\$?
    [ \$full = 3 ] || { echo \"exit \$full on a full disk\"; exit 1; }
    [ -z \"\$(tail -c1 disk/$arch/accuracy.csv)\" ] || { echo torn; exit 1; }
    $smla check $several -q --resume disk; full=\$?
    [ \$full = 3 ] || { echo \"exit \$full on a disk that is still full\"; exit 1; }
    mount -o remount,size=10m disk
    exec $smla check $several -q --resume disk")"
else
  echo '| mounts of its own | | not allowed here: a read-only and a full disk were left out |'
fi
many_lines=yes may_write=yes expect 'the file size limit (ulimit -f): what was finished is whole, and it goes on' 0 'File too large; the rows before are whole' "
  (ulimit -f 64; exec $smla check $several -q --out limited); full=\$?
  [ \$full = 3 ] || { echo \"exit \$full at the limit\"; exit 1; }
  [ -z \"\$(tail -c1 limited/$arch/accuracy.csv)\" ] || { echo torn; exit 1; }
  exec $smla check $several -q --resume limited"
many_lines=yes expect 'a full device instead of a file' 3 '/dev/full: No space left' "$smla compare $top/reports/baselines/sm_90 $top/reports/baselines/sm_90 --csv /dev/full"
ln -s /dev/full full
expect 'capture: a full device' 3 'cannot write full: No space left' "$smla capture --kernel cpu_naive 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20' full"
many_lines=yes expect '... instead of a benchmark.json' 3 'cannot write full: No space left' "$smla bench $small --cache warm --max-time 0.02 --out gone --benchmark_out full"
many_lines=yes expect '... instead of a table' 3 'cannot write full: No space left' "$smla compare $top/reports/baselines/sm_90 $top/reports/baselines/sm_90 --markdown full"
[ -L full ] || wrong 'a link to a device was replaced by a file'
[ -c /dev/full ] || wrong '/dev/full is a device no more'
expect 'capture: no such folder' 3 'cannot write nowhere/x: No such file' "$smla capture --kernel cpu_naive 'decode b=1 s_q=1 h_q=2 s_kv=90 topk=20' nowhere/x"
expect 'known issues without end' 3 'cannot read /dev/zero: is no regular file' "$smla gate --baseline $top/reports/baselines/sm_90 --out $top/reports/baselines/sm_90 --known-issues /dev/zero"
expect 'stdout is closed' 3 'stdout is closed' "$smla check $small --out out >&-"
many_lines=yes expect 'stdin and stderr are closed' 0 'passed 1 / planned 1' "$smla check $small --out gone <&- 2>&-"
expect 'stdout is full' 3 'No space left' "$smla check $small --out gone >/dev/full"
rm -rf out

until_rows() {  # the run in the background has written rows, or ended
  until [ "$(cat "$1" 2>/dev/null | wc -l)" -gt 1 ] || ! kill -0 $first 2>/dev/null; do sleep 0.02; done
}

# Two at once.
bash -c "exec $smla check $several --determinism 50 -q --out out" >first 2>&1 &
first=$!
until_rows out/$arch/accuracy.csv
may_write=yes expect 'two runs into one OUT' 3 "another run \\(process $first\\) is writing into out/$arch" "$smla check $small --out out"
# Interrupted: whole rows, the count and how to go on. Then it goes on.
kill -INT $first
wait $first
status=$?
row 'Ctrl-C' $status "$(grep -m1 'interrupted by' first)"
{ [ $status = 130 ] && grep -q 'go on with: .*/smla check .*--resume out' first; } || wrong "Ctrl-C: exit $status: $(cat first)"
whole_rows out
expect '... and resumed' 0 'resumed: [1-9][0-9]* of them were in the report' "$smla check $several --determinism 50 -q --resume out"
rm -rf out
bash -c "exec $smla bench $several --max-time 0.05 -q --cache warm --out out" >first 2>&1 &
first=$!
until_rows out/$arch/throughput.csv
kill -TERM $first
wait $first
status=$?
row 'SIGTERM while timing' $status "$(grep -m1 'interrupted by' first)"
[ $status = 143 ] || wrong "SIGTERM: exit $status: $(cat first)"
rm -rf out

# OUT is removed under a run: it ends, and does not write for an hour what nobody will see.
bash -c "exec $smla check $several --determinism 50 -q --out out" >first 2>&1 &
first=$!
until_rows out/$arch/accuracy.csv
rm -rf out
wait $first
status=$?
row 'OUT is removed under a run' $status "$(head -1 first)"
{ [ $status = 3 ] && grep -q 'accuracy.csv: it was removed while the run was writing it' first && [ "$(wc -l <first)" = 1 ]; } || wrong "OUT removed: exit $status: $(cat first)"
rm -rf out

# The clock is set back by an hour at every look.
expect 'the clock runs backwards' 0 'passed 1 / planned 1' "LD_PRELOAD=$build/harness/testing/libsmla_clock.so $smla run $small --cache warm --max-time 0.02 --out out"
grep -Eq '(^|,)-[0-9]' out/$arch/throughput.csv && wrong "a negative number in throughput.csv"
[ "$("$smla" gate --baseline out/$arch --out out/$arch >said 2>&1; echo $?)" = 0 ] || wrong "the report of a clock that runs backwards: $(cat said)"
may_write=yes expect '... and again into the same OUT' 0 'passed 1 / planned 1' "$smla run $small --cache warm --max-time 0.02 --out out"

# The two files of a timed run disagree.
cp out/$arch/throughput.csv times.csv
cp out/$arch/samples.csv samples.csv
change() {  # FILE PYTHON: rows as dicts
  python3 - "$1" "$2" <<'P'
import csv, sys
path, what = sys.argv[1:]
rows = list(csv.DictReader(open(path, newline="")))
columns = rows[0].keys()
exec(what)
out = csv.DictWriter(open(path, "w", newline=""), columns, lineterminator="\n")
out.writeheader()
out.writerows(rows)
P
}
change out/$arch/throughput.csv 'rows[0]["time_us_median"] = rows[0]["time_us_q3"]'
expect 'a median that its samples do not give' 3 'throughput.csv:2: column time_us_median: .* but its [0-9]+ samples in .*samples.csv give' "$smla compare out/$arch out/$arch"
cp times.csv out/$arch/throughput.csv
change out/$arch/samples.csv 'rows[0]["kernel"] = "cpu_other"'
may_write=yes expect 'samples without a row' 0 'samples.csv: 1 measurements without a row in .*throughput.csv' "$smla gate --baseline out/$arch --out out/$arch"
cp samples.csv out/$arch/samples.csv

# A baseline that a run cannot be held against, or a run that has not what it needs.
gate="$smla gate --baseline base --out out"
base() {  # PYTHON over the rows of the baseline's throughput.csv
  rm -rf base
  cp -r out/$arch base
  rm base/samples.csv
  change base/throughput.csv "$1"
}
base 'for row in rows: row["device_name"] = "Another"'
expect 'a baseline of another device' 3 "not comparable: decode .* was measured on Another .* in base/throughput.csv and on .* in out/$arch/throughput.csv" "$gate"
base 'for row in rows: row["power_limit_w"] = "450"'
expect '... of another power limit' 3 'not comparable: .*power limit 450 W' "$gate"
base 'for row in rows: row["schema_version"] = "7"'
expect '... of another schema' 3 'base/throughput.csv:2: column schema_version: 7 under the header of version' "$gate"
base 'for row in rows: row["time_us_median"] = "nan"'
expect '... with a time that is NaN' 3 'base/throughput.csv:2: column time_us_median: "nan" is not a finite' "$gate"
base 'for row in rows: row["time_us_median"] = "-5"'
expect '... with a negative time' 3 'base/throughput.csv:2: column time_us_median: "-5"' "$gate"
base 'rows.clear()'
expect '... that is nothing but a header' 3 'base/throughput.csv: no row of the baseline passed' "$gate"
: >base/throughput.csv
expect '... that is an empty file' 3 'base/throughput.csv: is empty: no header' "$gate"
base 'for row in rows: row["samples"] = "1"'
expect '... with one sample' 0 '1 samples are too few for an interval' "$gate"
base 'rows.append(dict(rows[0], kernel="cpu_gone"))'
expect 'a time that the run lacks' 2 'time_lost.*cpu_gone' "$gate"
base 'for row in rows: row["kernel"] = "cpu_gone"'
expect 'reports that have nothing in common' 4 'base and out have no timed pair in common' "$smla compare base out"
base ''
many_lines=yes expect 'where nothing can be written' 3 'cannot write /proc/nowhere/gate.md' "$gate --markdown /proc/nowhere/gate.md"
mkdir only; cp "out/$arch/throughput.csv" only
expect 'a report of times alone' 3 'only: no accuracy.csv is there.* `smla bench` does not' "$smla gate --baseline out/$arch --out only"
expect 'a report that is not there' 3 'base/deeper: no accuracy.csv is there' "$smla gate --baseline base/deeper --out out"
expect 'a GPU that is not here' 5 '--gpu 99: ' "$smla check $small --gpu 99 --out out"

# A run that is resumed believes no row that was changed.
cp -r out changed
accuracy=changed/$arch/accuracy.csv
resumed() {  # WHAT REGEX PYTHON
  cp out/$arch/accuracy.csv $accuracy
  change $accuracy "$3"
  expect "resumed: $1" 3 "cpu_naive, decode b=1 .*$2.* it was changed after the run" "$smla run $small --cache warm --max-time 0.02 --resume changed"
}
resumed 'half a pair' 'the row of lse is missing' 'rows = [r for r in rows if r["tensor"] == "out"]'
resumed 'the other half' 'the row of out is missing' 'rows = [r for r in rows if r["tensor"] == "lse"]'
resumed 'a status that its figures deny' 'out is pass, with 3 bad rows' 'rows[-2]["n_bad_rows"] = 3'
resumed 'a status without a reason' "out is fail, and its detail is ''" 'rows[-2]["status"] = "fail"'
resumed 'two rows of different runs' 'its two rows are not of one run' 'rows[-1]["checks_run"] = "guards"'
resumed 'a check that failed unseen' 'both rows pass, and guards_ok is false' 'rows[-1]["guards_ok"] = rows[-2]["guards_ok"] = "false"'
cp out/$arch/accuracy.csv $accuracy
for damage in 'head -c 100@is no JSON object' 's/run_id/run_di/@no .run_id. of its kind' 's/"resumed":.0/"resumed":"no"/@no .resumed. of its kind'; do
  how=${damage%%@*}
  case $how in s*) how="sed $how" ;; esac
  $how out/$arch/env.json >changed/$arch/env.json
  expect "resumed: env.json after $how" 3 "env.json: .*${damage##*@}" "$smla run $small --cache warm --max-time 0.02 --resume changed"
done
rm -r changed

# A spreadsheet saved the report.
csv=out/$arch/accuracy.csv
cp $csv clean.csv
spoilt() {
  cp clean.csv $csv
  python3 - "$2" $csv <<'P'
import csv, io, sys
how, path = sys.argv[1:]
text = open(path, newline="").read()
rows = list(csv.reader(io.StringIO(text)))
def write(rows, **options):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", **options).writerows(rows)
    return out.getvalue()
at = rows[0].index("z_max")
text = {
    "crlf": lambda: text.replace("\n", "\r\n"),
    "bom": lambda: "\ufeff" + text,
    "order": lambda: write([[r[1], r[0], *r[2:]] for r in rows]),
    "removed": lambda: write([r[:at] + r[at + 1:] for r in rows]),
    "semicolon": lambda: write(rows, delimiter=";"),
    "comma": lambda: write([rows[0]] + [[*r[:at], "1,5", *r[at + 1:]] for r in rows[1:]]),
    "upper": lambda: text.replace(",true,", ",TRUE,"),
}[how]()
open(path, "w", newline="").write(text)
P
  expect "report saved by a spreadsheet: $1" 3 "$3" "$smla gate --baseline out/$arch --out out/$arch --accuracy-only"
  expect '... and a run into it' 3 "$csv" "$smla check $small --out out"
}
spoilt 'CRLF' crlf 'accuracy.csv:1: .*CRLF'
spoilt 'byte order mark' bom 'accuracy.csv:1: .*byte order mark'
spoilt 'columns in another order' order 'accuracy.csv:1: column 1 is "run_id".*another order'
spoilt 'a column removed' removed 'accuracy.csv:1: column [0-9]+ is .*one removed'
spoilt 'semicolons' semicolon "accuracy.csv:1: .*separated by ';'"
spoilt '1,5 for 1.5' comma 'accuracy.csv:2: column z_max: "1,5" is not'
spoilt 'TRUE for true' upper 'accuracy.csv:2: column .*"TRUE"'

[ $failures = 0 ] || { echo "misuse: $failures wrong"; exit 1; }
