// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// The version, here and nowhere else: CMake, the program and the API pages read these lines.
// docs/versioning.md says what it promises.
#define PENTATRON_VERSION_MAJOR 0
#define PENTATRON_VERSION_MINOR 1
#define PENTATRON_VERSION_PATCH 0

// To compare: MAJOR * 1'000'000 + MINOR * 1'000 + PATCH.
#define PENTATRON_VERSION_NUMBER \
  (PENTATRON_VERSION_MAJOR * 1000000 + PENTATRON_VERSION_MINOR * 1000 + PENTATRON_VERSION_PATCH)

namespace pentatron {

// "0.1.0", of the library that the program runs with. The macros above are of the headers that it
// was compiled with; before 1.0 both must be of one minor version.
[[nodiscard]] std::string_view version();

// version() as PENTATRON_VERSION_NUMBER.
[[nodiscard]] int version_number();

}  // namespace pentatron
