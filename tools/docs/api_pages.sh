#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# api_pages.sh [OUT_DIR]: writes the pages of the public headers, those that pentatron/pentatron.h includes, with Doxygen. A warning is
# an error.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v doxygen >/dev/null || { echo "error: doxygen is not here: make tools installs it" >&2; exit 2; }
export PENTATRON_API_PAGES="${1:-build/api}"
PENTATRON_PUBLIC_HEADERS="pentatron/pentatron.h $(sed -n 's/^#include "\(pentatron\/[^"]*\)"$/\1/p' pentatron/pentatron.h | tr '\n' ' ')"
PENTATRON_VERSION="$(sed -n 's/^#define PENTATRON_VERSION_M[AI][JN]OR \|^#define PENTATRON_VERSION_PATCH //p' pentatron/version.h | paste -sd.)"
export PENTATRON_PUBLIC_HEADERS PENTATRON_VERSION
mkdir -p "$PENTATRON_API_PAGES"
doxygen docs/Doxyfile
echo "API pages: $PENTATRON_API_PAGES/html/index.html"
