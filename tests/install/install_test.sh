#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build into an empty folder, moves it, takes clone, build and unpacked wheels away (an empty file system is mounted over
# them in a mount namespace), and uses what is left: the installed program, its monitor library, its documentation, the examples.
# Usage: install_test.sh BUILD_FOLDER
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
build="$1"
deps="$(sed -n 's/^PENTATRON_DEPS_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
cp -r "$root/examples" "$root/LICENSE" "$root/tools/checks/runpaths.py" "$work/"
# A1: a library in the current folder is never loaded, neither by the installed files nor by those of the build.
python3 "$root/tools/checks/runpaths.py" "$work/prefix" "$build/bin" "$build/lib"
mkdir "$work/hostile"
for library in libfmt.so.9 libc10.so libpentatron.so; do echo 'no library' >"$work/hostile/$library"; done
(cd "$work/hostile" && LD_LIBRARY_PATH='' "$work/prefix/bin/pentatron" --version && LD_LIBRARY_PATH='' "$build/bin/pentatron" --version)
if find "$work/prefix/include" -name '*test*' | grep . || grep -rn "$root" "$work/prefix/include" "$work/prefix/lib/cmake"; then
  echo "error: the installed headers or package hold tests or a path of this clone" >&2
  exit 1
fi
if readelf -d "$work"/prefix/bin/* "$work"/prefix/lib/*.so | grep -E 'R(UN)?PATH' | grep -F -e "[$root" -e ":$root" -e "[$deps" -e ":$deps" |
  grep -v -e "$deps/cuda/"; then
  echo "error: an installed file looks for libraries in this clone" >&2
  exit 1
fi
# Without rights to mount, in a user namespace.
unshare=(unshare --mount)
[ "$(id -u)" = 0 ] || unshare+=(--map-root-user)
"${unshare[@]}" bash -euo pipefail -s "$root" "$build" "$deps" "$work" <"$(dirname "$0")/without_clone.sh"
