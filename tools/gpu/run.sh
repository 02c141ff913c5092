#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the GPU tests of a packed build (pack.sh) on this machine, or any command with its environment:
#   run.sh [--gtest_filter=...]        every GPU test program; a line each at the end; exit code 1 if one failed
#   run.sh -- bin/pentatron --version  a command
# Needs a driver, GPUs, and a Python whose torch has the version that the build was made with (PYTHON: python3).
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here" || exit 2
libraries="$("${PYTHON:-python3}" - "$(cat torch_version)" <<'PYTHON'
import glob, importlib.util, os, re, sys
wanted = sys.argv[1]
spec = importlib.util.find_spec("torch")
if spec is None:
    sys.exit(f"error: this Python has no torch; pip install torch=={wanted}")
folder = os.path.dirname(spec.origin)
with open(os.path.join(folder, "version.py"), encoding="utf-8") as f:
    found = re.search(r"__version__\s*(?::\s*str)?\s*=\s*'([^']*)'", f.read()).group(1)
if found.split("+")[0] != wanted:
    sys.exit(f"error: the build was made with torch {wanted}, this Python has {found}; pip install torch=={wanted}")
site = os.path.dirname(folder)
folders = [os.path.join(folder, "lib")] + sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib"))) + sorted(
    glob.glob(os.path.join(site, "cusparselt", "lib")))
print(":".join(folders))
PYTHON
)" || exit 2
export LD_LIBRARY_PATH="$here/lib:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PENTATRON_BIN="$here/bin/pentatron"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
if [ "${1:-}" = -- ]; then
  shift
  exec "$@"
fi
# Suites named ...Rank are the processes that other tests start.
[ $# -gt 0 ] || set -- '--gtest_filter=-*Rank.*'
export PENTATRON_REQUIRE_GPU="${PENTATRON_REQUIRE_GPU:-1}"
bin/pentatron --version || exit 1
failed=0
summary=()
for program in bin/*_gpu_test; do
  name="$(basename "$program")"
  echo "== $name"
  log="$(mktemp)"
  from=$SECONDS
  timeout "${GPU_TEST_TIMEOUT:-600}" "$program" "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
  skipped=$(grep -c '^\[  SKIPPED \] .*(' "$log")
  [ "$code" -eq 0 ] || failed=1
  summary+=("$(printf '%-24s exit %-3s passed %-4s skipped %-4s %4s s' "$name" "$code" "${passed:-0}" "$skipped" $((SECONDS - from)))")
  rm -f "$log"
done
echo "== summary"
printf '%s\n' "${summary[@]}"
exit "$failed"
