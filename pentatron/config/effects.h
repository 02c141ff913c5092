// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/parser.h"

namespace pentatron::config {

// Adds a line for each value that a user set (file, command line, --set) and that has no effect
// beside the other values, with what to change. Reads unresolved values.
void add_effect_problems(const RunConfig& config, const Origins& origins, Problems& problems);

}  // namespace pentatron::config
