#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks: layers, sizes, licence, paths, whitespace; clang-format on every source; clang-tidy on the files that differ from BASE
# (default: the parent of the last commit; TIDY=all for every file, TIDY=none to leave it out). Needs a configured build/release.
set -uo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
cd "$root" || exit 2
failed=0

python3 tools/checks/checks.py || failed=1

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cc' '*.cu' '*.cuh')
if ! clang-format --dry-run --Werror "${sources[@]}"; then
  echo "format: run clang-format -i on the files above"
  failed=1
fi

case "${TIDY:-changed}" in
  none) files=() ;;
  all) mapfile -t files < <(git ls-files -- '*.cc') ;;
  *)
    base="${BASE:-$(git rev-parse --verify --quiet HEAD~1 || git hash-object -t tree /dev/null)}"
    mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cc' | head -n "${TIDY_MOST:-40}")
    ;;
esac
if [ ${#files[@]} -gt 0 ]; then
  if [ ! -f build/release/compile_commands.json ]; then
    echo "tidy: configure first (make configure)"
    failed=1
  else
    # clang cannot read gcc's precompiled header: the flags that name it are taken out of a copy of the database.
    mkdir -p build/tidy
    python3 tools/checks/tidy_database.py build/release/compile_commands.json build/tidy/compile_commands.json
    printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/tidy --quiet --warnings-as-errors='*' \
      2> >(grep -v 'warnings generated\|Suppressed\|Use -header-filter' >&2) || failed=1
  fi
fi
[ "$failed" -eq 0 ] && echo "checks: all good (${#sources[@]} sources, ${#files[@]} of them tidied)"
exit "$failed"
