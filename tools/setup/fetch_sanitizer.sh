#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks compute-sanitizer (14 MB) from a pinned wheel into .deps/sanitizer, for tools/gpu/sanitize.sh. Needs no GPU; does nothing where it is there.
# Version and hash: tools/setup/wheels_sanitizer.txt.
# shellcheck source=tools/setup/wheels.sh
. "$(dirname "$0")/wheels.sh"
pins="$root/tools/setup/wheels_sanitizer.txt"
target="$deps/sanitizer"
if is_complete "$target" "$pins"; then exit 0; fi
work="$deps/sanitizer.tmp.$$"
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/wheels" "$work/out"
download "$pins" "$work/wheels" --platform manylinux_2_25_x86_64
python3 - "$work/wheels" "$work/out" <<'PYTHON'
import os, pathlib, sys, zipfile
wheels, out = map(pathlib.Path, sys.argv[1:])
for wheel in wheels.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            parts = pathlib.PurePosixPath(info.filename).parts  # nvidia/cu13/bin/..., nvidia/cu13/lib/...
            if info.is_dir() or len(parts) != 4 or parts[2] not in ("bin", "lib"):
                continue
            path = out / parts[2] / parts[3]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(archive.read(info))
            os.chmod(path, 0o755)
PYTHON
cp "$pins" "$work/out/.complete"
rm -rf "$target"
mv "$work/out" "$target"
echo "compute-sanitizer in $target"
