#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks: those of checks.py; prose within 120 columns; API pages without a warning; clang-format on every source; clang-tidy on the files that differ from BASE (default: the parent of
# the last commit; TIDY=all for every file, TIDY=none to leave it out). Of more than TIDY_MOST (40) changed files that many are taken,
# spread evenly over the list, and what is left out is named. Needs a configured build/release.
set -uo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
cd "$root" || exit 2
failed=0
files=()

python3 tools/checks/checks.py || failed=1
if ! python3 tools/docs/reflow.py --check; then
  echo "prose: lines over 120 columns in the pages above: run tools/docs/reflow.py"
  failed=1
fi
if [ -f docs/Doxyfile ] || [ -x tools/docs/api_pages.sh ]; then tools/docs/api_pages.sh build/api || failed=1; fi

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cc' '*.cu' '*.cuh' '*.inc' | sort -u |
  while read -r f; do [ -f "$f" ] && echo "$f"; done)
if [ ${#sources[@]} -gt 0 ] && ! clang-format --dry-run --Werror "${sources[@]}"; then
  echo "format: run clang-format -i on the files above"
  failed=1
fi

# wanted: what to tidy; most: how many of them.
wanted=()
most=0
case "${TIDY:-changed}" in
  none) ;;
  all)
    mapfile -t wanted < <(git ls-files -- '*.cc')
    most=${#wanted[@]}
    ;;
  *)
    base="${BASE:-$(git rev-parse --verify --quiet HEAD~1 || git hash-object -t tree /dev/null)}"
    mapfile -t wanted < <(git diff --name-only --diff-filter=d "$base" -- '*.cc')
    most="${TIDY_MOST:-40}"
    ;;
esac
if [ ${#wanted[@]} -gt 0 ]; then
  if [ ! -f build/release/compile_commands.json ]; then
    echo "tidy: configure first (make configure)"
    failed=1
  else
    # clang cannot read gcc's precompiled header: the flags that name it are taken out of a copy of the database.
    mkdir -p build/tidy
    python3 tools/checks/tidy_database.py build/release/compile_commands.json build/tidy/compile_commands.json \
      >build/tidy/files.txt || failed=1
    # Fuzzers and CUDA sources are compiled apart from this database.
    mapfile -t known < <(printf '%s\n' "${wanted[@]}" | grep -Fxf build/tidy/files.txt)
    left_out=$(printf '%s\n' "${wanted[@]}" | grep -vFxf build/tidy/files.txt)
    [ -z "$left_out" ] || echo "tidy: left out, not in build/release/compile_commands.json:" $left_out
    skipped=()
    for i in "${!known[@]}"; do
      if [ ${#known[@]} -le "$most" ] || [ $(((i + 1) * most / ${#known[@]})) -ne $((i * most / ${#known[@]})) ]; then
        files+=("${known[$i]}")
      else
        skipped+=("${known[$i]}")
      fi
    done
    [ ${#skipped[@]} -eq 0 ] || echo "tidy: left out beyond TIDY_MOST=$most, ${#skipped[@]} of ${#known[@]} files: ${skipped[*]}"
    if [ ${#files[@]} -gt 0 ]; then
      printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/tidy --quiet --warnings-as-errors='*' \
        2> >(grep -v 'warnings generated\|warning generated\|Suppressed\|Use -header-filter' >&2) || failed=1
    fi
  fi
fi
[ "$failed" -eq 0 ] && echo "checks: all good (${#sources[@]} sources, ${#files[@]} of them tidied)"
exit "$failed"
