#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build into an empty folder, builds the examples against it and runs them, and the installed program.
# Usage: install_test.sh BUILD_FOLDER
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
build="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
LD_LIBRARY_PATH='' "$work/prefix/bin/pentatron" --version
# A1: a library in the current folder is never loaded, neither by the installed files nor by those of the build.
python3 "$root/tools/checks/runpaths.py" "$work/prefix" "$build/bin" "$build/lib"
mkdir "$work/hostile"
for library in libfmt.so.9 libc10.so libpentatron.so; do echo 'no library' >"$work/hostile/$library"; done
(cd "$work/hostile" && LD_LIBRARY_PATH='' "$work/prefix/bin/pentatron" --version && LD_LIBRARY_PATH='' "$build/bin/pentatron" --version)
# The monitor library is installed too.
printf '%s\n' '{"kind":"train","iteration":1,"lm_loss":2.5}' '{"kind":"train","iteration":2,"lm_loss":2.0}' >"$work/metrics.jsonl"
(cd "$work/hostile" && LD_LIBRARY_PATH='' "$work/prefix/bin/pentatron" plot "$work/metrics.jsonl" --output "$work/loss.svg")
[ -s "$work/loss.svg" ] || { echo "error: the installed plot drew nothing" >&2; exit 1; }
if find "$work/prefix/include" -name '*test*' | grep . || grep -rn "$root" "$work/prefix/include"; then
  echo "error: the installed headers hold tests or a path of this clone" >&2
  exit 1
fi
cmake -S "$root/examples" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"
"$work/build/simple_training_loop" "$root/LICENSE" 60 | tee "$work/loop.log"
awk '/^step 1 /{first=$4} {last=$4} END {exit !(NR == 60 && last < 0.8 * first)}' "$work/loop.log" ||
  { echo "error: the loss did not fall" >&2; exit 1; }
"$work/build/custom_layer" 30
# A torch folder that is not there is refused with the remedy, not found silently elsewhere.
if cmake -S "$root/examples" -B "$work/wrong" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DPENTATRON_TORCH_ROOT=/nonexistent \
  >"$work/wrong.log" 2>&1 || ! grep -q PENTATRON_TORCH_ROOT "$work/wrong.log"; then
  echo "error: a wrong PENTATRON_TORCH_ROOT was not refused" >&2
  exit 1
fi
