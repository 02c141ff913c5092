// SPDX-License-Identifier: Apache-2.0
#include "pentatron/version.h"

#define PENTATRON_TEXT_OF(number) #number
#define PENTATRON_TEXT(number) PENTATRON_TEXT_OF(number)

namespace pentatron {

std::string_view version() {
  return PENTATRON_TEXT(PENTATRON_VERSION_MAJOR) "." PENTATRON_TEXT(
      PENTATRON_VERSION_MINOR) "." PENTATRON_TEXT(PENTATRON_VERSION_PATCH);
}

int version_number() { return PENTATRON_VERSION_NUMBER; }

}  // namespace pentatron
