#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds every *_fuzz.cc of this folder with libFuzzer, AddressSanitizer and UBSan and runs each for SECONDS.
#   tests/fuzz/run.sh [SECONDS=10] [NAME...]
# As many at a time as there are cores. Prints the executions of each; ends with 1 at the first finding (the input is kept in
# build/fuzz/findings).
# Needs: clang++-14 (or clang++) and libclang-rt-14-dev. A target names its parts in comment lines:
#   // sources: pentatron/base/x.cc ...     // libs: fmt ...     // max_len: 4096 (longest input, in bytes)
# A source may be a pattern. "// headers: torch" adds libtorch's headers (of PENTATRON_TORCH_INCLUDE, or of .deps/); with "// unlinked: ..."
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

build_one() {
  local name="$1" source_file="$here/$1_fuzz.cc" program="$out/$1_fuzz" part lib stale=0
  local parts=() libs=() flags=() found
  for part in $(words sources "$source_file"); do
    found="$(compgen -G "$root/$part")" || { echo "fuzz: $name names $part, which is not there" >&2; return 1; }
    while IFS= read -r part; do parts+=("$part"); done <<<"$found"
  done
  if [[ -n "$(words unlinked "$source_file")" ]]; then flags+=(-fno-pie -no-pie -Wl,--unresolved-symbols=ignore-all); fi
  if [[ -n "$(words headers "$source_file")" ]]; then flags+=(-isystem "$torch_include"); fi
  for lib in $(words libs "$source_file"); do libs+=("-l$lib"); done
  [[ -x "$program" ]] || stale=1
  for part in "$source_file" "${parts[@]}" "$root"/pentatron/*/*.h; do
    if [[ "$part" -nt "$program" ]]; then stale=1; fi
  done
  if [[ $stale -eq 1 ]]; then
    "$compiler" -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
      "${flags[@]}" "-I$root" "$source_file" "${parts[@]}" "${libs[@]}" -o "$program.new" && mv "$program.new" "$program"
  fi
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
  executions="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  printf 'fuzz: %-20s %12s executions in %s s, no finding\n' "$name" "$executions" "$seconds"
}

export -f words build_one run_one
export here root out compiler seconds torch_include
jobs="$(nproc)"
# 255 ends xargs at once: the first failure starts nothing new.
printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I{} bash -c 'build_one {} || exit 255' || { echo "fuzz: a target does not build" >&2; exit 1; }
printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I{} bash -c 'run_one {} || exit 255' || exit 1
