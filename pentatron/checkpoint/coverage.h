// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/checkpoint/manifest.h"

namespace pentatron::checkpoint {

// The slices of each tensor cover each element exactly once: slices of one box have ranges that
// follow each other from 0 to its end, and the different boxes tile the logical shape. Needs
// canonical order. kCheckpoint error that names `path` and the tensor.
void check_coverage(const Manifest& manifest, const std::string& path);

}  // namespace pentatron::checkpoint
