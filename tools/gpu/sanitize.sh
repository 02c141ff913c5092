#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of the kernels under compute-sanitizer: memcheck (memory outside of what was allocated), racecheck (threads that share memory without
# a barrier), initcheck on demand. Only Pentatron's own kernels are checked, which libraries' are not.
#   sanitize.sh [--tools "memcheck racecheck"] [--gtest_filter=...]
# Stands beside run.sh in a packed build (pack.sh) and is started there, on a machine with a GPU. compute-sanitizer: SANITIZER (a program), the
# folder sanitizer/ of the pack, PATH, or a CUDA toolkit. A line a tool at the end; exit code 1 if one found something or failed.
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here" || exit 2
tools="memcheck racecheck"
filter=""
while [ $# -gt 0 ]; do
  case "$1" in
    --tools) tools="${2:?--tools needs a value}"; shift 2 ;;
    --gtest_filter=*) filter="$1"; shift ;;
    *) sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
sanitizer="${SANITIZER:-}"
for place in "$here/sanitizer/bin" "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/compute-sanitizer; do
  [ -n "$sanitizer" ] || [ ! -x "$place/compute-sanitizer" ] || sanitizer="$place/compute-sanitizer"
done
[ -n "$sanitizer" ] || sanitizer="$(command -v compute-sanitizer)" || {
  echo "error: no compute-sanitizer: run tools/setup/fetch_sanitizer.sh before pack.sh, or set SANITIZER" >&2
  exit 2
}
# Kernels with every op and shape; the suites left out run the libraries' attention for minutes and no kernel that the others do not.
default='--gtest_filter=*Norm*:*norm*:*gelu*:*swiglu*:*gate*:*relu*:*dropout*:*Dropout*:*embedding*:*Embedding*:*rotary*:*Rotary*:Optimizer*:Sums*:Loss*:Keyed*:*Fp8*'
failed=0
summary=()
program=bin/ops_gpu_test
for tool in $tools; do
  echo "== $tool $program"
  log="$(mktemp)"
  from=$SECONDS
  # Blocks that the allocator cuts out of larger ones would hide what runs over their ends.
  PYTORCH_NO_CUDA_MEMORY_CACHING=1 PENTATRON_REQUIRE_GPU=1 timeout "${SANITIZE_TIMEOUT:-1800}" \
    ./run.sh -- "$sanitizer" --tool "$tool" --kernel-name kernel_substring=pentatron --error-exitcode 9 --print-limit 20 \
    "$program" "${filter:-$default}" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  [ "$code" -eq 0 ] || failed=1
  tests=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
  found=$(sed -n 's/^=* *\(ERROR SUMMARY: .*\|RACECHECK SUMMARY: .*\)$/\1/p' "$log" | tail -1)
  summary+=("$(printf '%-10s exit %-3s passed %-4s %4s s  %s' "$tool" "$code" "${tests:-0}" $((SECONDS - from)) "$found")")
  rm -f "$log"
done
echo "== summary"
printf '%s\n' "${summary[@]}"
exit "$failed"
