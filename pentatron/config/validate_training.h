// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/parser.h"

namespace pentatron::config {

// The training half of resolve(): batch, length, schedule, data and checkpoint rules. `layout_fine`
// says that data_parallel_size is resolved.
void resolve_training(RunConfig& config, const Origins& origins, bool layout_fine,
                      Problems& problems);

}  // namespace pentatron::config
