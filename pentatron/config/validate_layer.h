// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"
#include "pentatron/config/problems.h"

namespace pentatron::config {

// What of a layer's options does not go together: activations, places of norms, norms of queries
// and keys, rotations. `model` has its sizes resolved.
void check_layer(const ModelConfig& model, Problems& problems);

}  // namespace pentatron::config
