// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/parser.h"

namespace pentatron::config {

// Takes rank, world size, local rank and address from the launcher into the options, with their
// origin. Adds a problem for an option that contradicts the launcher, for processes beside a
// backend of one process, and for a world without processes.
void apply_launch_env(const LaunchEnv& env, ParsedOptions& parsed, Problems& problems);

}  // namespace pentatron::config
