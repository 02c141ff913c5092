#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks a CUDA toolkit that is enough to compile and link the CUDA library (nvcc, headers, the shared runtime) from pinned wheels into
# .deps/cuda, where no toolkit is installed. Running the CUDA library needs NVIDIA's libraries as a pip-installed torch brings them. Does nothing
# where nvcc is found; `--force` unpacks all the same. Versions and hashes: tools/setup/wheels_cuda.txt.
# shellcheck source=tools/setup/wheels.sh
. "$(dirname "$0")/wheels.sh"
pins="$root/tools/setup/wheels_cuda.txt"
target="$deps/cuda"
if [ "${1:-}" != --force ] && { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }; then
  exit 0
fi
if is_complete "$target" "$pins"; then exit 0; fi
work="$deps/cuda.tmp.$$"
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/wheels" "$work/out"
echo "downloading $(grep -o '^[^ ]*' "$pins" | tr '\n' ' ')(about 725 MB)"
download "$pins" "$work/wheels" \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_18_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux2014_x86_64 --platform manylinux2010_x86_64
# Of the mathematical and communication libraries the headers alone are needed: they are linked where they run.
python3 - "$work/wheels" "$work/out" <<'PYTHON'
import os, pathlib, sys, zipfile
wheels, out = map(pathlib.Path, sys.argv[1:])
for wheel in sorted(wheels.glob("*.whl")):
    headers_only = wheel.name.startswith(("nvidia_cublas", "nvidia_nccl"))
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            parts = pathlib.PurePosixPath(info.filename).parts  # nvidia/cu13/include/... or nvidia/nccl/include/...
            if info.is_dir() or len(parts) < 4 or parts[0] != "nvidia" or (headers_only and parts[2] != "include"):
                continue
            path = out.joinpath(*parts[2:])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(info))
            os.chmod(path, 0o755 if parts[2] == "bin" or (parts[2] == "nvvm" and "bin" in parts) else 0o644)
PYTHON
[ -e "$work/out/lib64" ] || ln -s lib "$work/out/lib64"
[ -e "$work/out/lib/libcudart.so" ] || ln -s libcudart.so.13 "$work/out/lib/libcudart.so"
cp "$pins" "$work/out/.complete"
rm -rf "$target"
mv "$work/out" "$target"
echo "CUDA toolkit in $target"
