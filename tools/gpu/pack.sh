#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh OUT_DIR [BUILD_DIR]: collects what a machine with GPUs needs of a build made elsewhere: the program, both libraries, the GPU tests
# and the system libraries that such a machine may lack, all stripped, with run.sh beside them. libtorch and NVIDIA's libraries are not
# among them: the target brings a pip-installed torch of the same version.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
[ $# -ge 1 ] || { echo "usage: tools/gpu/pack.sh OUT_DIR [BUILD_DIR]" >&2; exit 2; }
out="$1"
build="${2:-$root/build/release}"
[ -f "$build/lib/libpentatron_cuda.so" ] || {
  echo "error: $build/lib/libpentatron_cuda.so is missing: run make cuda" >&2
  exit 2
}
rm -rf "$out/bin" "$out/lib"
mkdir -p "$out/bin" "$out/lib"
cp "$build/bin/pentatron" "$out/bin/"
for test in "$build"/bin/*_gpu_test; do
  [ -f "$test" ] && cp "$test" "$out/bin/"
done
cp "$build/lib/libpentatron.so" "$build/lib/libpentatron_cuda.so" "$out/lib/"
# Of the system's libraries those that do not come with every Linux.
ldd "$out"/bin/* "$out"/lib/libpentatron.so | awk '$3 ~ /^\// { print $3 }' | sort -u |
  grep -E '/lib(fmt|spdlog|yaml-cpp|simdjson|z\.so|zstd|bz2|lzma|icuuc|icudata|gtest|protobuf-lite)' | while read -r library; do
    cp -L "$library" "$out/lib/"
  done
strip --strip-unneeded "$out"/bin/* "$out"/lib/libpentatron*.so
sed -n 's/^torch==\([^ ]*\).*/\1/p' "$root/tools/setup/wheels.txt" >"$out/torch_version"
cp "$root/tools/gpu/run.sh" "$root/tools/gpu/sanitize.sh" "$out/"
sanitizer="${PENTATRON_DEPS_DIR:-$root/.deps}/sanitizer"
rm -rf "$out/sanitizer"
if [ -d "$sanitizer" ]; then
  cp -r "$sanitizer" "$out/sanitizer"
fi
du -sm "$out" | awk '{ print $1 " MiB in " $2 }'
ls "$out/bin"
