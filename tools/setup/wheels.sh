# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Read by the fetch scripts: folders, and wheels of pinned versions and hashes.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
deps="${PENTATRON_DEPS_DIR:-$root/.deps}"

# Whether folder $1 was made of the pins in file $2.
is_complete() { [ -f "$1/.complete" ] && cmp -s "$1/.complete" "$2"; }

# download PINS FOLDER [further options of pip download, such as platforms]
download() {
  local pins="$1" folder="$2"
  shift 2
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: "$@" \
    --dest "$folder" --requirement "$pins"
}
