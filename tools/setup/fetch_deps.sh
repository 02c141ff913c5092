#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks the pinned torch wheel and the two small NVIDIA wheels that libtorch_cpu cannot load without into .deps/site.
# Nothing is installed into the system; a finished folder is left alone. Versions and hashes: tools/setup/wheels.txt.
# shellcheck source=tools/setup/wheels.sh
. "$(dirname "$0")/wheels.sh"
pins="$root/tools/setup/wheels.txt"
if is_complete "$deps/site" "$pins"; then exit 0; fi
mkdir -p "$deps"
wheels="$deps/wheels"
mkdir -p "$wheels"
echo "downloading $(grep -o '^[^ ]*' "$pins" | tr '\n' ' ')(about 545 MB) into ${deps#"$root"/}"
download "$pins" "$wheels" --python-version 3.11 --implementation cp --abi cp311 --abi none \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64
work="$deps/site.tmp.$$"
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
for wheel in "$wheels"/*.whl; do
  echo "unpacking $(basename "$wheel")"
  python3 -m zipfile -e "$wheel" "$work"
done
# Parts that a C++ program never reads; and torch's own copy of fmt's headers, which would be found before the system's and does not match
# its library.
rm -rf "$work"/torch/include/fmt "$work"/torchgen "$work"/functorch "$work"/torch/bin "$work"/torch/test
cp "$pins" "$work/.complete"
rm -rf "$deps/site"
mv "$work" "$deps/site"
rm -rf "$wheels"
trap - EXIT
