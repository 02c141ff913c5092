#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds every *_fuzz.cc of this folder with libFuzzer, AddressSanitizer and UBSan and runs each for SECONDS.
#   tests/fuzz/run.sh [SECONDS=10] [NAME...]
# As many at a time as there are cores. Prints the executions of each; ends with 1 at the first finding (the input is kept in
# build/fuzz/findings).
# Needs: clang++-14 (or clang++) and libclang-rt-14-dev. A target names its parts in comment lines:
#   // sources: pentatron/base/x.cc ...     // libs: fmt ...     // max_len: 4096 (longest input, in bytes)
# A source may be a pattern. libtorch's headers (of PENTATRON_TORCH_INCLUDE, or of .deps/) are found where they are there; with "// unlinked: ..."
# functions that the target never calls may be missing, so that a parser is built without the whole of what stands in its file.
# Starting inputs: corpus/<name>/ if present; a dictionary: <name>.dict if present.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
seconds="${1:-10}"
[[ "$seconds" =~ ^[0-9]+$ ]] || { echo "usage: $0 [seconds] [name...]" >&2; exit 2; }
shift || true
names=("$@")
out="${PENTATRON_FUZZ_DIR:-$root/build/fuzz}"
compiler="$(command -v clang++-14 || command -v clang++ || true)"
if [[ -z "$compiler" ]]; then
  echo "fuzz: clang++ not found: install clang and libclang-rt-14-dev" >&2
  exit 2
fi
mkdir -p "$out/findings"
torch_include="${PENTATRON_TORCH_INCLUDE:-${PENTATRON_DEPS_DIR:-$root/.deps}/site/torch/include}"
if [[ ${#names[@]} -eq 0 ]]; then
  for file in "$here"/*_fuzz.cc; do names+=("$(basename "$file" _fuzz.cc)"); done
fi

words() { sed -n "s|^// $1: *||p" "$2" | tr '\n' ' '; }

for name in "${names[@]}"; do
  [[ -f "$here/${name}_fuzz.cc" ]] || { echo "fuzz: no $here/${name}_fuzz.cc" >&2; exit 2; }
done

# Parts that several targets need are compiled once.
object_of() { local path="${1#"$root"/}"; echo "$out/objects/${path//\//-}.o"; }

parts_of() {
  local part found
  echo "$here/$1_fuzz.cc"
  for part in $(words sources "$here/$1_fuzz.cc"); do
    found="$(compgen -G "$root/$part")" || { echo "fuzz: $1 names $part, which is not there" >&2; return 1; }
    echo "$found"
  done
}

compile_one() {
  local object flags=()
  object="$(object_of "$1")"
  [[ "$object" -nt "$1" && "$object" -nt "$newest_header" ]] && return
  if [[ -d "$torch_include" ]]; then flags+=(-isystem "$torch_include"); fi
  "$compiler" -std=c++20 -O1 -g1 -fno-pie -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
    "${flags[@]}" "-I$root" -c "$1" -o "$object.new" && mv "$object.new" "$object"
}

link_one() {
  local part lib objects=() libs=() flags=()
  for part in $(parts_of "$1"); do objects+=("$(object_of "$part")"); done
  for lib in $(words libs "$here/$1_fuzz.cc"); do libs+=("-l$lib"); done
  if [[ -n "$(words unlinked "$here/$1_fuzz.cc")" ]]; then flags+=(-Wl,--unresolved-symbols=ignore-all); fi
  "$compiler" -no-pie -fsanitize=fuzzer,address,undefined "${flags[@]}" "${objects[@]}" "${libs[@]}" -o "$out/$1_fuzz"
}

run_one() {
  local name="$1" program="$out/$1_fuzz" corpus="$out/corpus/$1" log="$out/$1.log" executions
  mkdir -p "$corpus"
  local inputs=("$corpus")
  [[ -d "$here/corpus/$name" ]] && inputs+=("$here/corpus/$name")
  local options=("-max_total_time=$seconds" "-artifact_prefix=$out/findings/$name-" -print_final_stats=1
    -rss_limit_mb=2048 -timeout=10 -verbosity=0)
  local longest
  longest="$(words max_len "$here/${name}_fuzz.cc")"
  [[ -n "$longest" ]] && options+=("-max_len=${longest% }")
  [[ -f "$here/$name.dict" ]] && options+=("-dict=$here/$name.dict")
  if ! "$program" "${options[@]}" "${inputs[@]}" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz: $name FAILED (input in $out/findings)" >&2
    return 1
  fi
  local rate
  rate="$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")"
  executions="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  printf 'fuzz: %-20s %12s executions in %s s (%s a second), no finding\n' "$name" "$executions" "$seconds" "$rate"
}

export -f words object_of parts_of compile_one link_one run_one
mkdir -p "$out/objects"
newest_header="$(ls -t "$root"/pentatron/*/*.h "$here"/*.h | sed -n 1p)"
export here root out compiler seconds newest_header torch_include
jobs="$(nproc)"
# 255 ends xargs at once: the first failure starts nothing new.
for name in "${names[@]}"; do parts_of "$name"; done | sort -u |
  xargs -P "$jobs" -I{} bash -c 'compile_one {} || exit 255' || { echo "fuzz: a part does not build" >&2; exit 1; }
printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I{} bash -c 'link_one {} || exit 255' || { echo "fuzz: a target does not build" >&2; exit 1; }
printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I{} bash -c 'run_one {} || exit 255' || exit 1
