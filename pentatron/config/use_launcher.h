// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"

namespace pentatron::config {

// Puts what the launcher of this process says (read_launch_env) into `parallel`: world size, rank,
// local rank and where the ranks meet. False, and nothing is changed, where no launcher started
// several. Variables that contradict each other: kConfig.
[[nodiscard]] bool use_launcher(ParallelConfig& parallel);

}  // namespace pentatron::config
