#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs fuzzers that run.sh has built, each until it has made EXECUTIONS, spread over JOBS processes at a time.
#   [SEED=1] tests/fuzz/long.sh EXECUTIONS JOBS [FOLDER=build/fuzz] [NAME...]
# SEED: the random number that the first process begins with, the others count up from it: another one continues an earlier run elsewhere.
# FOLDER holds the programs NAME_fuzz; without names all of them run, one after the other. Each process has a temporary corpus of its own and
# its own random numbers, and begins with corpus/NAME/ where there is one. Prints a line a fuzzer: executions, seconds, findings. Ends with 1
# at findings, or where a fuzzer stopped early; inputs and logs of these are kept in FOLDER/findings.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
executions="${1:-}"
jobs="${2:-}"
seed="${SEED:-1}"
if ! [[ "$executions" =~ ^[1-9][0-9]*$ && "$jobs" =~ ^[1-9][0-9]*$ && "$seed" =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: [SEED=N] $0 EXECUTIONS JOBS [FOLDER] [NAME...]" >&2
  exit 2
fi
folder="${3:-$here/../../build/fuzz}"
[[ -d "$folder" ]] || { echo "$folder: no such folder: build the fuzzers with tests/fuzz/run.sh 1" >&2; exit 2; }
folder="$(cd "$folder" && pwd)"
shift "$(($# < 3 ? $# : 3))"
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for program in "$folder"/*_fuzz; do names+=("$(basename "$program" _fuzz)"); done
fi
for name in "${names[@]}"; do
  [[ -x "$folder/${name}_fuzz" ]] || { echo "$folder/${name}_fuzz: no such program: build it with tests/fuzz/run.sh 1 $name" >&2; exit 2; }
done
mkdir -p "$folder/findings"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# One process of a fuzzer. Its findings are files of its own folder.
run_part() {
  local name="$1" part="$2" runs="$3" work="$scratch/$1/$2" longest
  mkdir -p "$work/corpus" "$work/findings"
  local inputs=("$work/corpus")
  [[ -d "$here/corpus/$name" ]] && inputs+=("$here/corpus/$name")
  local options=("-runs=$runs" "-seed=$((seed + part))" "-artifact_prefix=$work/findings/$name-" -print_final_stats=1 -rss_limit_mb=2048
    -timeout=10 -verbosity=0)
  longest="$(sed -n 's|^// max_len: *||p' "$here/${name}_fuzz.cc" | head -n 1)"
  [[ -n "$longest" ]] && options+=("-max_len=$longest")
  [[ -f "$here/$name.dict" ]] && options+=("-dict=$here/$name.dict")
  "$folder/${name}_fuzz" "${options[@]}" "${inputs[@]}" >"$work/log" 2>&1 || echo "$?" >"$work/failed"
  rm -rf "$work/corpus"
}

# Waits for all parts of a fuzzer and prints its line.
run_fuzzer() {
  local name="$1" part runs begin seconds done_runs findings failed
  runs="$(((executions + jobs - 1) / jobs))"
  begin="$(date +%s)"
  for ((part = 0; part < jobs; ++part)); do run_part "$name" "$part" "$runs" & done
  wait
  seconds="$(($(date +%s) - begin))"
  done_runs="$(cat "$scratch/$name"/*/log | awk '/^stat::number_of_executed_units/ { sum += $NF } END { print sum + 0 }')"
  findings="$(find "$scratch/$name" -path '*/findings/*' -type f | wc -l)"
  failed="$(find "$scratch/$name" -name failed | wc -l)"
  printf '%-20s %12s executions %8s s %4s findings\n' "$name" "$done_runs" "$seconds" "$findings"
  if ((findings == 0 && failed == 0 && $done_runs >= executions)); then
    rm -rf "${scratch:?}/$name"
    return 0
  fi
  find "$scratch/$name" -path '*/findings/*' -type f -exec cp {} "$folder/findings" \;
  for ((part = 0; part < jobs; ++part)); do
    [[ -f "$scratch/$name/$part/failed" ]] && cp "$scratch/$name/$part/log" "$folder/findings/$name-$part.log"
  done
  echo "$name: $failed of $jobs processes failed; see $folder/findings" >&2
  return 1
}

status=0
for name in "${names[@]}"; do run_fuzzer "$name" || status=1; done
exit "$status"
