// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "pentatron/checkpoint/manifest.h"

namespace pentatron::checkpoint {

// kCheckpoint error that lists both sets when the weights ("param/...") and Buffers ("buffer/...")
// in the checkpoint are not those of the model, but for what nn::is_optional_state names. Optimizer
// state is not looked at.
void check_model_names(const std::set<std::string>& names, const Manifest& manifest,
                       const std::string& folder);

}  // namespace pentatron::checkpoint
