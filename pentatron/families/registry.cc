// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/registry.h"

#include <array>

namespace pentatron::families {

std::span<const Family* const> families() {
  static const std::array kFamilies = {
#define PENTATRON_FAMILY(folder) &folder(),
#include "pentatron/families/registry.inc"
#undef PENTATRON_FAMILY
  };
  return kFamilies;
}

}  // namespace pentatron::families
