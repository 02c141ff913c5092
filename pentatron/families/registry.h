// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/families/family.h"

// Each family of registry.inc is a function of its folder's name.
namespace pentatron::families {

#define PENTATRON_FAMILY(folder) [[nodiscard]] const Family& folder();
#include "pentatron/families/registry.inc"
#undef PENTATRON_FAMILY

}  // namespace pentatron::families
