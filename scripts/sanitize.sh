#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compute-sanitizer over every CUDA kernel: memcheck, synccheck, initcheck, racecheck. Needs a GPU.
#   scripts/sanitize.sh PROGRAM OUT     PROGRAM: smla_cuda_bringup of a build; OUT: a folder for sanitizer.csv and a log of each run
# SANITIZE_TIMEOUT_S (200) is what a run may take. As many run at a time as there are cores. Two planted defects must be found, or else the tool is blind here.
# Exit status: 0 all clean, 1 findings or a blind tool, 3 usage, 77 no GPU or no sanitizer.
set -euo pipefail
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac

kernels=(naive dense_paged virtual_block_table sparse_mma sparse_wgmma dense_wgmma)
controls=("memcheck mut_gpu_sticky_fault" "racecheck mut_gpu_missing_barrier")
cases=(
  "decode b=3 s_q=2 h_q=8 s_kv=300 topk=192 pattern=interleaved_invalid topk_length=1 sink=mixed"
  "decode b=2 s_q=1 h_q=16 s_kv=400 topk=256 pattern=padded kv_format=fp8_656 page_size=53"
  "decode b=2 s_q=1 h_q=64 s_kv=300 topk=192 pattern=all_invalid q_dtype=fp16 kv_format=fp16 topk_length=1"
  "prefill b=1 s_q=5 h_q=128 s_kv=300 topk=192 pattern=leading_invalid sink=finite"
  "decode b=2 s_q=1 h_q=128 s_kv=300 topk=256 kv_format=fp8_656"
  "decode b=3 s_q=2 h_q=16 s_kv=200 topk=256 pattern=dense lens=mixed page_size=16"
  "decode b=2 s_q=1 h_q=128 s_kv=200 topk=256 pattern=dense"
)

# One row of the table. `runs`: calls whose answer was judged; what the kernel declines is none.
row() {
  local tool=$1 kernel=$2 limit=${SANITIZE_TIMEOUT_S:-200} log begin errors runs note='' status=0
  [ "$tool" != racecheck ] || cases=(once "${cases[@]}")  # thousands of times slower than the kernel alone
  log=$out/$tool.$kernel.log
  begin=$(date +%s)
  timeout "$limit" "$sanitizer" --tool "$tool" --print-limit 50 --error-exitcode 9 "$program" check "kernel=$kernel" "${cases[@]}" > "$log" 2>&1 || status=$?
  errors=$(sed -nE 's/^=+ ERROR SUMMARY: ([0-9]+) .*/\1/p; s/^=+ RACECHECK SUMMARY: .*\(([0-9]+) errors.*/\1/p' "$log" | head -1)
  runs=$(sed -nE 's/^check: .*, ([0-9]+) runs judged.*/\1/p' "$log")
  if [ "$status" -eq 124 ]; then
    note="stopped after $limit s"
    errors=$(grep -cE '^=+ (Error|Barrier)' "$log" || true)
  elif [ -z "$errors" ]; then
    note=$(grep -m1 -iE 'error|denied|not supported' "$log" || true)
  elif [ "$errors" -gt 0 ]; then
    note=$(grep -m1 -E '^=+ (Error|Invalid|Uninit|Barrier|Potential|Warning|Race)' "$log" || true)
  fi
  note=${note//,/;}
  echo "$tool,$kernel,${runs:-0},${errors:-none},$(($(date +%s) - begin)),${note:0:120}"
}

if [ "${1-}" = --row ]; then row "$2" "$3"; exit; fi

export program=${1?sanitize.sh needs smla_cuda_bringup} out=${2?sanitize.sh needs a folder for its results}
[ -x "$program" ] || { echo "sanitize: $program is not there" >&2; exit 3; }
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
export sanitizer
[ -x "$sanitizer" ] || { echo "sanitize: compute-sanitizer is not installed here"; exit 77; }
nvidia-smi -L > /dev/null 2>&1 || { echo "sanitize: no GPU is here"; exit 77; }
mkdir -p "$out"
{
  echo "tool,kernel,runs,errors,seconds,note"
  for tool in memcheck synccheck initcheck racecheck; do
    for kernel in "${kernels[@]}"; do echo "$tool $kernel"; done
    printf '%s\n' "${controls[@]}" | grep "^$tool " || true
  done | xargs -P "$(nproc)" -L 1 "$0" --row | sort
} > "$out/sanitizer.csv"
cat "$out/sanitizer.csv"

# "none": the run told no number of errors.
awk -F, 'NR == 1 { next }
         $2 ~ /^mut_/ { if ($4 == 0 || $4 == "none") { print $1 " does not see " $2; bad = 1 } next }
         $4 != 0 || $3 == 0 { print $1 ", " $2 ": " $4 " errors in " $3 " runs"; bad = 1 }
         END { exit bad }' "$out/sanitizer.csv"
