// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/base/error.h"
#include "pentatron/checkpoint/manifest.h"
#include "pentatron/config/config.h"

namespace pentatron::inference {

// Before anything of the model is built: what `model` (resolved) says is held against the weights
// that the manifest lists, by name and shape, so that a checkpoint from outside cannot ask for more
// memory than its own files take. kCheckpoint that names what differs.
void check_stored_model(const config::ModelConfig& model, const checkpoint::Manifest& manifest,
                        const std::string& folder);

// The same for a Hugging Face folder of so many tensors, before its parts are listed: kData.
void check_sizes(const config::ModelConfig& model, std::size_t num_tensors, ErrorKind kind,
                 const std::string& where);

}  // namespace pentatron::inference
