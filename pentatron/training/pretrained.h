// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/config/config.h"
#include "pentatron/config/parser.h"

// --pretrained-checkpoint: where a run begins as long as --load holds nothing. One command then
// starts a fine-tuning run and goes on with it.
namespace pentatron::training {

// The folder that a run of these options would begin with; empty: none. Something like a checkpoint
// in --load that is none: kCheckpoint.
[[nodiscard]] std::string first_folder(const config::EarlyValue& value);

// Makes --load and --finetune say what first_folder() finds, and tells it (empty: nothing to tell).
// No checkpoint in either folder: kCheckpoint.
[[nodiscard]] std::string use_pretrained(config::CheckpointConfig& options);

}  // namespace pentatron::training
