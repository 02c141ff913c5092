// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"
#include "pentatron/config/problems.h"

namespace pentatron::config {

// What --fp8-format asks of precision and sizes: products in fp8 take multiples of 16 channels.
// Model and layout are resolved.
void check_fp8(const RunConfig& config, Problems& problems);
// The same of --fp8-output-proj once the vocabulary is known: kConfig.
void check_fp8_vocabulary(const RunConfig& config);

// What the optimizer's state asks of optimizer and precision: --use-precision-aware-optimizer,
// --optimizer lion and soap.
void check_optimizer_state(const RunConfig& config, Problems& problems);

}  // namespace pentatron::config
