// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace pentatron::fuzz {

// A finding unless it holds.
inline void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace pentatron::fuzz
